"""Tests of what build.py decides; the compilers are run by the demo and by the cluster tests."""

import json
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import build


class Tags(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def program(self, content: bytes) -> Path:
        file = self.folder / "program"
        file.write_bytes(content)
        return file

    def test_the_same_program_keeps_its_tag_and_another_one_gets_another(self) -> None:
        first = build.tag(self.program(b"one"), "/worker")
        self.assertEqual(build.tag(self.program(b"one"), "/worker"), first)
        self.assertNotEqual(build.tag(self.program(b"two"), "/worker"), first)
        self.assertNotEqual(build.tag(self.program(b"one"), "/operator"), first)

    def test_an_archive_is_made_once_and_replaces_its_predecessor(self) -> None:
        with mock.patch.dict("os.environ", {build.PREFIX: ""}):
            first = build.archive("worker", self.program(b"one"), self.folder)
            made = Path(first["archive"]).stat().st_mtime_ns
            again = build.archive("worker", self.program(b"one"), self.folder)
            self.assertEqual((first, made), (again, Path(again["archive"]).stat().st_mtime_ns))
            self.assertTrue(first["image"].startswith("localhost/lanekeeper-worker:dev-"), first["image"])
            second = build.archive("worker", self.program(b"two"), self.folder)
        self.assertNotEqual(second["image"], first["image"])
        self.assertFalse(Path(first["archive"]).exists())

    def test_the_prefix_of_a_registry_is_part_of_the_name(self) -> None:
        with mock.patch.dict("os.environ", {build.PREFIX: "registry.example.com/team"}):
            made = build.archive("flights", self.program(b"one"), self.folder)
        self.assertTrue(made["image"].startswith("registry.example.com/team/lanekeeper-flights:dev-"), made["image"])


class Cargo(unittest.TestCase):
    def test_programs_are_found_in_cargos_messages(self) -> None:
        messages = [
            json.dumps({"reason": "compiler-artifact", "target": {"name": "clap"}, "executable": None}),
            "a line of somebody else",
            json.dumps({"reason": "compiler-artifact", "target": {"name": "lanekeeper-worker"}, "executable": "/t/w"}),
            json.dumps({"reason": "build-finished", "success": True}),
        ]
        self.assertEqual(build.executables(messages), {"lanekeeper-worker": Path("/t/w")})

    def test_a_missing_compiler_is_named(self) -> None:
        with self.assertRaisesRegex(build.Problem, "`no-such-compiler` was not found on PATH"):
            build.run(["no-such-compiler"], "building")


if __name__ == "__main__":
    unittest.main()
