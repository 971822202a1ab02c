"""Starts, recognises and ends the cluster's own processes.

A process is ours when its pid has the start time on record, or when its environment carries the mark with
the cluster's folder (which the container shims inherit). Nothing here may signal a process known by its name
only.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from .layout import Layout

MARK = "LANEKEEPER_DEV_CLUSTER"
# Kept, since Python complains about a child object that is let go of while its process runs on.
_children: list[subprocess.Popen] = []


def identity(pid: int) -> str | None:
    """What tells a process from a later one with the same pid; none when it is gone or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # The name, in parentheses, may contain anything; the fields after it are state, parent, ...
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{boot}/{fields[19]}"


def start(layout: Layout, name: str, command: list[str], extra_path: str = "") -> None:
    """Starts a process of its own session, output to its log, and records it."""
    environment = {**os.environ, MARK: str(layout.folder)}
    if extra_path:
        environment["PATH"] = f"{environment.get('PATH', '')}:{extra_path}"
    # An outer cluster's or a user's settings must not reach the components.
    for foreign in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "CONTAINERD_ADDRESS", "NOTIFY_SOCKET"):
        environment.pop(foreign, None)
    with open(layout.log_of(name), "wb") as log:
        process = subprocess.Popen(
            command,
            cwd=layout.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _children.append(process)
    record = {"pid": process.pid, "identity": identity(process.pid)}
    (layout.pid / name).write_text(json.dumps(record) + "\n")


def running(layout: Layout, name: str) -> int | None:
    """The pid of a recorded process, none when it ended."""
    try:
        record = json.loads((layout.pid / name).read_text())
        pid, recorded = int(record["pid"]), record["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if recorded and identity(pid) == recorded else None


def recorded(layout: Layout) -> list[str]:
    """The names of all processes that were started."""
    return sorted(file.name for file in layout.pid.iterdir()) if layout.pid.is_dir() else []


def marked(layout: Layout) -> list[int]:
    """Every process that carries this cluster's mark, whether it is on record or not."""
    wanted = f"{MARK}={layout.folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def descendants(pids: Iterable[int]) -> list[int]:
    """The children of processes, and theirs: those of a shim are the processes of its pod."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = list(pids)
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in found:
                found.append(child)
                waiting.append(child)
    return found


def end(pids: Iterable[int], grace: float) -> None:
    """SIGTERM, and SIGKILL for those that are still there when the grace is over. Returns when they are gone."""
    handles = []
    for pid in pids:
        # A pidfd names this very process, even when its pid is given to another one meanwhile.
        with contextlib.suppress(OSError):
            handles.append((pid, os.pidfd_open(pid)))
    try:
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            if patience <= 0:
                continue
            for _, handle in handles:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(handle, number)
            handles = _still_there(handles, patience)
    finally:
        for _, handle in handles:
            os.close(handle)


def _still_there(handles: list[tuple[int, int]], patience: float) -> list[tuple[int, int]]:
    deadline = time.monotonic() + patience
    poller = select.poll()
    for _, handle in handles:
        poller.register(handle, select.POLLIN)
    left = {handle: pid for pid, handle in handles}
    while left and (remaining := deadline - time.monotonic()) > 0:
        for handle, _ in poller.poll(remaining * 1000):
            poller.unregister(handle)
            with contextlib.suppress(OSError):
                # Only a child of this very process needs it; init reaps the others.
                os.waitpid(left[handle], os.WNOHANG)
            os.close(handle)
            del left[handle]
    return [(pid, handle) for handle, pid in left.items()]
