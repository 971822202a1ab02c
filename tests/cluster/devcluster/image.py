"""Container images without a daemon: static files become a docker-archive tar.

The same input gives the same bytes (no times, no owners, a fixed order), so an unchanged program keeps its
image id. The format: https://github.com/moby/docker-image-spec/blob/main/spec.md ("Combined Image JSON +
Filesystem Changeset Format"). `ctr images import`, `kind load image-archive` and `docker load` read it.
"""

import hashlib
import io
import json
import os
import platform
import re
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .say import Problem

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# The address of an image: host and path in lower case, a tag. containerd's own rule is wider; ours is enough.
NAME = re.compile(
    r"[a-z0-9]+(?:[._-][a-z0-9]+)*(?::[0-9]+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
)


@dataclass(frozen=True)
class Image:
    """What goes into an image."""

    name: str
    entrypoint: list[str]
    # Path inside the image -> file outside.
    files: dict[str, Path]
    # Numeric, because `runAsNonRoot` refuses a user known by name only.
    user: int = 65532
    env: tuple[str, ...] = ()

    def write(self, output: Path) -> None:
        """Writes the archive whole or not at all."""
        layer = layer_tar(self)
        layer_digest = hashlib.sha256(layer).hexdigest()
        config = json.dumps(self._config(layer_digest), sort_keys=True).encode()
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = [{"Config": config_name, "RepoTags": [self.name], "Layers": [f"{layer_digest}/layer.tar"]}]
        members = [
            (config_name, config),
            (f"{layer_digest}/layer.tar", layer),
            ("manifest.json", json.dumps(manifest).encode()),
        ]
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_name(f"{output.name}.partial-{os.getpid()}")
        try:
            with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as archive:
                for name, content in members:
                    archive.addfile(_entry(name, len(content)), io.BytesIO(content))
            partial.rename(output)
        finally:
            partial.unlink(missing_ok=True)

    def _config(self, layer_digest: str) -> dict:
        runtime = {
            "Entrypoint": self.entrypoint,
            "User": f"{self.user}:{self.user}",
            "WorkingDir": "/",
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", *self.env],
        }
        return {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": runtime,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            "history": [{"created_by": "lanekeeper tests/cluster"}],
        }


def parse_files(arguments: Iterable[str]) -> dict[str, Path]:
    """`FILE=PATH` arguments: the file outside, the absolute path inside."""
    files: dict[str, Path] = {}
    for argument in arguments:
        outside, separator, inside = argument.rpartition("=")
        if not separator or not outside or not inside.startswith("/") or inside.endswith("/"):
            raise Problem(f"`{argument}`: expected FILE=/absolute/path/in/the/image")
        if not Path(outside).is_file():
            raise Problem(f"`{argument}`: there is no file {outside}")
        if inside in files:
            raise Problem(f"`{argument}`: {inside} is given twice")
        files[inside] = Path(outside)
    return files


def check_name(name: str) -> str:
    """The image name, refused when a registry would refuse it."""
    if not NAME.fullmatch(name):
        raise Problem(f"image name `{name}`: expected [host/]path:tag in lower case, for example localhost/worker:dev")
    return name


def parse_entrypoint(text: str) -> list[str]:
    """A JSON list of strings."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Problem(f'--entrypoint `{text}`: not JSON ({error}); expected a list such as ["/worker"]') from error
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise Problem(f'--entrypoint `{text}`: expected a JSON list of strings such as ["/worker"]')
    return value


def layer_tar(image: Image) -> bytes:
    """The one layer: the files, their folders, /tmp, and the two files that name the user."""
    passwd = "root:x:0:0:root:/:/sbin/nologin\n"
    group = "root:x:0:\n"
    if image.user != 0:
        passwd += f"nonroot:x:{image.user}:{image.user}:nonroot:/:/sbin/nologin\n"
        group += f"nonroot:x:{image.user}:\n"
    contents = {"/etc/passwd": (passwd.encode(), 0o644), "/etc/group": (group.encode(), 0o644)}
    for inside, outside in image.files.items():
        mode = 0o755 if os.access(outside, os.X_OK) else 0o644
        contents[inside] = (outside.read_bytes(), mode)
    folders = {"tmp": 0o1777}
    for inside in contents:
        for parent in Path(inside.lstrip("/")).parents:
            if str(parent) not in (".", "tmp"):
                folders[str(parent)] = 0o755
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as layer:
        for folder in sorted(folders):
            entry = _entry(folder, 0, folders[folder])
            entry.type = tarfile.DIRTYPE
            layer.addfile(entry)
        for inside in sorted(contents):
            content, mode = contents[inside]
            layer.addfile(_entry(inside.lstrip("/"), len(content), mode), io.BytesIO(content))
    return buffer.getvalue()


def _entry(name: str, size: int, mode: int = 0o644) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = mode
    return entry
