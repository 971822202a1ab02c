"""Image archives: the same bytes each time, and what a container runtime needs in them."""

import hashlib
import io
import json
import tarfile
import tempfile
import unittest
from pathlib import Path

from devcluster import image
from devcluster.say import Problem


class Images(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.program = self.folder / "program"
        self.program.write_text("binary")
        self.program.chmod(0o700)
        self.data = self.folder / "data=1"
        self.data.write_text("text")
        files = image.parse_files([f"{self.program}=/usr/bin/program", f"{self.data}=/etc/ssl/data"])
        self.image = image.Image("localhost/thing:1", ["/usr/bin/program", "run"], files, env=("A=b",))

    def read(self, output: Path) -> tuple[dict, dict, tarfile.TarFile]:
        """The archive taken apart: manifest, configuration, layer."""
        with tarfile.open(output) as archive:
            manifest = json.load(archive.extractfile("manifest.json"))[0]
            config = archive.extractfile(manifest["Config"]).read()
            layer = archive.extractfile(manifest["Layers"][0]).read()
        self.assertEqual(manifest["Config"], f"{hashlib.sha256(config).hexdigest()}.json")
        parsed = json.loads(config)
        self.assertEqual(parsed["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(layer).hexdigest()}"])
        return manifest, parsed, tarfile.open(fileobj=io.BytesIO(layer))

    def test_the_archive_is_complete_and_its_digests_are_right(self) -> None:
        self.image.write(self.folder / "out" / "image.tar")
        manifest, config, layer = self.read(self.folder / "out" / "image.tar")
        self.assertEqual(manifest["RepoTags"], ["localhost/thing:1"])
        self.assertEqual(config["config"]["Entrypoint"], ["/usr/bin/program", "run"])
        self.assertEqual(config["config"]["User"], "65532:65532")
        self.assertIn("A=b", config["config"]["Env"])
        modes = {member.name: member.mode for member in layer.getmembers()}
        self.assertEqual(modes["usr/bin/program"], 0o755)
        self.assertEqual(modes["etc/ssl/data"], 0o644)
        self.assertEqual(modes["tmp"], 0o1777)
        self.assertIn(b"nonroot:x:65532:", layer.extractfile("etc/passwd").read())
        names = list(modes)
        for name in names:
            parent = name.rpartition("/")[0]
            self.assertTrue(not parent or names.index(parent) < names.index(name), f"{parent} must come before {name}")

    def test_the_same_input_gives_the_same_bytes(self) -> None:
        for name in ("one.tar", "two.tar"):
            self.image.write(self.folder / name)
        self.assertEqual((self.folder / "one.tar").read_bytes(), (self.folder / "two.tar").read_bytes())

    def test_bad_arguments_are_refused_with_the_value_and_what_is_allowed(self) -> None:
        cases = (
            (lambda: image.parse_files(["program"]), "`program`.*FILE=/absolute"),
            (lambda: image.parse_files([f"{self.program}=relative"]), "FILE=/absolute"),
            (lambda: image.parse_files(["/no/such=/file"]), "there is no file /no/such"),
            (lambda: image.parse_files([f"{self.program}=/a", f"{self.data}=/a"]), "/a is given twice"),
            (lambda: image.parse_entrypoint("/worker"), "not JSON"),
            (lambda: image.parse_entrypoint("[]"), "JSON list of strings"),
            (lambda: image.parse_entrypoint('["a", 1]'), "JSON list of strings"),
            (lambda: image.check_name("Upper/case:1"), "lower case"),
            (lambda: image.check_name("no-tag"), "path:tag"),
        )
        for call, words in cases:
            with self.assertRaisesRegex(Problem, words):
                call()

    def test_usual_names_are_accepted(self) -> None:
        for name in ("worker:dev", "localhost/worker:1.2.3", "registry.example.com:5000/team/lane-keeper:sha-1"):
            self.assertEqual(image.check_name(name), name)
