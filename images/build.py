#!/usr/bin/env python3
"""Builds the images of the demo and of the tests without a Docker daemon: operator, worker, the flights handler, NATS.
The kubectl plugin, a program for this machine, is built along.

    images/build.py                 # build what changed; prints one JSON object
    images/build.py --load          # and put all of them into the cluster (LANEKEEPER_CLUSTER)
    images/build.py worker flights  # only these

An image's tag is made of the hash of what is in it. So an unchanged program keeps its image, a changed one is
rolled out, and no pod ever runs an old program under a new one's name. Compilers decide themselves what has
changed; this script must not try to know better. For people with Docker there is the Dockerfile beside it.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "tests" / "cluster" / "cluster.py"
PREFIX = "LANEKEEPER_IMAGE_PREFIX"
NATS = "nats-server-2.15"

# What an image is called -> the program in it.
RUST = {"operator": "lanekeeper-operator", "worker": "lanekeeper-worker"}
# No image: a program for the user's own kubectl, which costs little beside the operator.
PLUGIN = "kubectl-lanes"
NAMES = {
    "operator": ("lanekeeper-operator", "/lanekeeper-operator"),
    "worker": ("lanekeeper-worker", "/lanekeeper-worker"),
    "flights": ("lanekeeper-flights", "/handler"),
    "nats": ("nats-server", "/nats-server"),
}


class Problem(Exception):
    """What a person has to read; no traceback."""


def say(text: str) -> None:
    """Progress, for people."""
    print(f"images: {text}", file=sys.stderr, flush=True)


def run(command: list[str], what: str, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    """A command's standard output; its errors go where ours go."""
    try:
        done = subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise Problem(f"{what}: `{command[0]}` was not found on PATH") from None
    if done.returncode != 0:
        raise Problem(f"{what} failed (exit code {done.returncode}): {' '.join(command)}")
    return done.stdout


def target_folder() -> Path:
    """Cargo's target folder, wherever the user has it."""
    metadata = run(["cargo", "metadata", "--no-deps", "--format-version=1", "--locked"], "asking cargo for its target folder")
    return Path(json.loads(metadata)["target_directory"])


def host_triple() -> str:
    """What rustc calls this machine; the images are for the same one."""
    lines = run(["rustc", "-vV"], "asking rustc for its host").splitlines()
    triple = next(line.removeprefix("host: ") for line in lines if line.startswith("host: "))
    if not triple.endswith("-linux-gnu"):
        raise Problem(f"images are built on Linux with glibc; this is {triple}. With Docker: docker build --target worker .")
    return triple


def executables(messages: Iterable[str]) -> dict[str, Path]:
    """Cargo's JSON messages -> the programs that it made, by name."""
    found = {}
    for line in messages:
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            found[message["target"]["name"]] = Path(message["executable"])
    return found


def build_rust(wanted: list[str]) -> dict[str, Path]:
    """Static programs, so that an image needs nothing else."""
    packages = [*(RUST[name] for name in wanted), PLUGIN]
    say(f"building {' and '.join(packages)} (release; 5 to 10 minutes on two cores when nothing is built yet)")
    command = ["cargo", "build", "--locked", "--release", "--target", host_triple(), "--message-format=json-render-diagnostics"]
    # With --target the flag does not reach build scripts and macros, which must stay dynamic.
    flags = f"{os.environ.get('RUSTFLAGS', '')} -C target-feature=+crt-static".strip()
    made = executables(run([*command, *(word for package in packages for word in ("-p", package, "--bin", package))], "cargo build", {"RUSTFLAGS": flags}).splitlines())
    missing = [package for package in packages if package not in made]
    if missing:
        raise Problem(f"cargo build made no program named {', '.join(missing)}")
    return {**{name: made[RUST[name]] for name in wanted}, "plugin": made[PLUGIN]}


def build_flights(folder: Path) -> Path:
    """The example's handler."""
    program = folder / "flights-handler"
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(program), "."]
    run(command, "go build of the flights handler", {"CGO_ENABLED": "0"}, ROOT / "examples" / "flights" / "handler")
    return program


def programs(wanted: list[str], folder: Path) -> dict[str, Path]:
    """The program of each wanted image."""
    found = build_rust(rust) if (rust := [name for name in wanted if name in RUST]) else {}
    if "flights" in wanted:
        found["flights"] = build_flights(folder)
    if "nats" in wanted:
        found["nats"] = Path(run([str(CLUSTER), "path", NATS], f"getting {NATS}").strip())
    return found


def tag(program: Path, inside: str) -> str:
    """The hash of everything that decides the image's content."""
    digest = hashlib.sha256(f"{inside}\n".encode())
    digest.update(program.read_bytes())
    return f"dev-{digest.hexdigest()[:12]}"


def archive(name: str, program: Path, folder: Path) -> dict[str, str]:
    """The image's archive; made only when this very content has none yet."""
    called, inside = NAMES[name]
    label = tag(program, inside)
    prefix = os.environ.get(PREFIX) or "localhost"
    image = f"{prefix}/{called}:{label}"
    # The image's full name is part of the archive, so of the file's name too.
    file = folder / f"{called}-{hashlib.sha256(image.encode()).hexdigest()[:12]}.tar"
    if not file.is_file():
        for old in folder.glob(f"{called}-*.tar"):
            old.unlink()
        run([str(CLUSTER), "image", str(file), image, "--entrypoint", json.dumps([inside]), f"{program}={inside}"], f"making the image {image}")
    return {"image": image, "archive": str(file)}


def main(arguments: list[str]) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(description="Build the images of the demo and the tests.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--load", action="store_true", help="put them into the cluster that LANEKEEPER_CLUSTER chooses")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown image {', '.join(unknown)}; there are {', '.join(NAMES)}")
    wanted = [name for name in NAMES if not options.names or name in options.names]
    try:
        folder = target_folder() / "images"
        folder.mkdir(parents=True, exist_ok=True)
        found = programs(wanted, folder)
        images = {name: archive(name, found[name], folder) for name in wanted}
        if options.load:
            run([str(CLUSTER), "load", *(image["archive"] for image in images.values())], "loading the images into the cluster")
    except Problem as problem:
        say(str(problem))
        return 1
    plugin = {"plugin": {"program": str(found["plugin"])}} if "plugin" in found else {}
    print(json.dumps({**images, **plugin}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
