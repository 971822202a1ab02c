"""Builds one Go program from a committed go.mod and go.sum, without cgo, so that no C compiler is needed.

The versions are those of go.mod and nowhere else; Go itself checks each module against go.sum. Go's module and
build caches, proxy and checksum settings are the user's.
"""

import os
import platform
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import cache
from .say import Problem, say

HERE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class GoProgram:
    """A program named by its package inside the module at `module` (a path below tests/cluster)."""

    name: str
    module: str
    package: str
    # The module whose version is the program's version; also put in place of {version} in `stamps`.
    versioned_by: str
    # Variables set by the linker, {version}, {major}, {minor} and {patch} replaced.
    stamps: dict[str, str] = field(default_factory=dict)
    cold: str = "a few seconds"

    def version(self) -> str:
        """The version in go.mod; v1 for a program of ours that requires nothing."""
        if not self.versioned_by:
            return "v1"
        return required_version((HERE / self.module / "go.mod").read_text(), self.versioned_by)

    def command(self, output: Path) -> list[str]:
        """The build, exactly."""
        version = self.version()
        major, minor, patch = (*version.lstrip("v").split("."), "0", "0")[:3]
        words = {"version": version, "major": major, "minor": minor, "patch": patch}
        values = [f"-X {name}={value.format(**words)}" for name, value in self.stamps.items()]
        flags = " ".join(["-s", "-w", *values])
        return [
            "go",
            "build",
            "-mod=readonly",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            flags,
            "-o",
            str(output),
            self.package,
        ]

    def ensure(self) -> Path:
        """The program's path in the cache, built when it is missing."""
        module = HERE / self.module
        sources = [file for pattern in ("go.mod", "go.sum", "*.go") for file in module.glob(pattern)]
        content = cache.key(sources, " ".join(self.command(Path(self.name))), platform.system(), platform.machine())
        folder = f"{self.name}-{self.version().lstrip('v')}-{content}"
        return cache.ensure(self.name, folder, self._build) / self.name

    def _build(self, folder: Path) -> None:
        if shutil.which("go") is None:
            raise Problem(f"{self.name} is built from source: Go 1.26 or newer is needed on PATH (https://go.dev/dl)")
        say(f"building {self.name} {self.version()} from source ({self.cold} when Go's own cache is empty)")
        started = time.monotonic()
        log = cache.root() / f"build-{self.name}.log"
        log.unlink(missing_ok=True)
        # A workspace file above us must not choose other versions, nor a user's setting another machine.
        environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOOS": "", "GOARCH": ""}
        cache.run_slow(self.command(folder / self.name), f"building {self.name}", log, HERE / self.module, environment)
        log.unlink(missing_ok=True)
        say(f"built {self.name} in {time.monotonic() - started:.0f} s")


def required_version(go_mod: str, module: str) -> str:
    """The version of `module` in the text of a go.mod."""
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)}\s+(v\S+)", go_mod, re.MULTILINE)
    if not found:
        raise Problem(f"go.mod does not require {module}")
    return found.group(1)
