"""The cache folder: built once, moved into place whole, safe for many processes at the same time.

A folder under `tools/` is complete or absent; nothing here may write into one that exists. The folder's name
carries the hash of everything that decides its content, so a changed pin never meets an old build.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .say import Problem, say, tail

HEARTBEAT_SECONDS = 15.0
TEMPORARY = ".building-"


def root() -> Path:
    """`$LANEKEEPER_CACHE`, else `$XDG_CACHE_HOME/lanekeeper`, else `~/.cache/lanekeeper`."""
    own = os.environ.get("LANEKEEPER_CACHE")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "lanekeeper"


def key(files: Iterable[Path], *words: str) -> str:
    """Twelve hex digits of the files' names and content and of the words that decide a build."""
    digest = hashlib.sha256()
    for file in sorted(files):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode())
        digest.update(content)
    for word in words:
        digest.update(f"{len(word)} {word}\n".encode())
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def lock(name: str, waiting: str, forget: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Holds the named lock; says `waiting` once when another process has it. Freed by the kernel on a crash.

    The lock's file goes when `forget` says, at the end, that nobody will need it again.
    """
    file = root() / "locks" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(file, "w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(waiting)
                fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_still(file, handle.fileno()):
                # The one before us removed it: others may hold the lock of a newer file.
                continue
            try:
                yield
            finally:
                if forget():
                    file.unlink(missing_ok=True)
            return


def _is_still(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(file), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def ensure(name: str, folder: str, build: Callable[[Path], None]) -> Path:
    """The complete folder `tools/<folder>`, made by `build(empty folder)` when it is not there yet."""
    tools = root() / "tools"
    final = tools / folder
    if final.is_dir():
        return final
    with lock(f"tool-{name}", f"waiting for another process that prepares {name}"):
        if final.is_dir():
            return final
        tools.mkdir(parents=True, exist_ok=True)
        for left_by_a_crash in tools.glob(f"{TEMPORARY}{name}-*"):
            shutil.rmtree(left_by_a_crash, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{name}-", dir=tools))
        try:
            build(work)
            work.chmod(0o755)
            work.rename(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return final


def run_slow(command: list[str], what: str, log: Path, cwd: Path | None = None, env: dict | None = None) -> None:
    """Runs a command that may take minutes, its output in `log`; says that it is still alive now and then."""
    started = time.monotonic()
    with open(log, "ab") as output:
        try:
            process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        except FileNotFoundError as error:
            raise Problem(f"{what}: the program `{command[0]}` was not found on PATH") from error
        try:
            while True:
                try:
                    code = process.wait(timeout=HEARTBEAT_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    say(f"{what}: {time.monotonic() - started:.0f} s so far")
        except BaseException:
            process.kill()
            process.wait()
            raise
    if code != 0:
        raise Problem(f"{what} failed (exit code {code}): {' '.join(command)}\n{tail(log, 30)}")
