"""Ends a cluster and undoes everything that it did to the machine.

Works from what is really there (marks of processes, mounts below the folder, the bridge's note), so that it
also cleans up after a start that was killed half-way or a cluster whose records are gone.
"""

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from . import controlplane, debian, network, node, processes
from . import layout as places
from .layout import Layout, State
from .say import say

WATCHDOG = "watchdog"
GRACE_SECONDS = 5.0
CNI_RESULTS = (Path("/var/lib/cni/results"), Path("/var/lib/cni/cache"))
CONTAINER_LOGS = Path("/var/log/containers")
SHIM_SOCKETS = Path("/run/containerd/s")
# The kubelet has no setting for this path.
DEVICE_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
# What containerd and kubelet make on any machine, whatever their settings; each inner folder before its outer one.
SHARED = (
    SHIM_SOCKETS,
    SHIM_SOCKETS.parent,
    DEVICE_SOCKET.parent,
    DEVICE_SOCKET.parent.parent,
    *CNI_RESULTS,
    CNI_RESULTS[0].parent,
    CONTAINER_LOGS,
)


def stop(layout: Layout) -> bool:
    """Ends everything but the calling process; whether there was anything to end. The logs stay."""
    state = layout.read_state()
    there = bool(state) or bool(processes.recorded(layout)) or bool(processes.marked(layout))
    owns_network = machine_is_ours(layout)
    if not there and not owns_network:
        return False
    _end_processes(layout)
    if owns_network or (state and state.mode == places.FULL):
        _undo_machine(layout, state)
    _remove_files(layout)
    return True


def machine_is_ours(layout: Layout) -> bool:
    """Whether this machine's bridge was made for this cluster."""
    if os.geteuid() != 0 or not debian.has("ip"):
        return False
    return network.bridge_owner() == str(layout.folder)


def _end_processes(layout: Layout) -> None:
    # The kubelet first, or it would start again what is ended; those that need the API server before it.
    for names in (
        node.COMPONENTS[1:],
        (controlplane.CONTROLLER_MANAGER,),
        (controlplane.APISERVER,),
        (controlplane.ETCD,),
    ):
        pids = [pid for name in names if (pid := processes.running(layout, name)) is not None]
        processes.end(pids, GRACE_SECONDS)
    containerd = processes.running(layout, node.CONTAINERD)
    if containerd is not None:
        processes.end([containerd], GRACE_SECONDS)
    # What is left carries the mark: the shims, and whatever a broken run did not record. Their children
    # are the pods; those go first, for a dead shim's children could no longer be told from others.
    for _ in range(5):
        left = processes.marked(layout)
        if not left:
            break
        processes.end(processes.descendants(left), 0)
        processes.end(left, 0)


def _undo_machine(layout: Layout, state: State | None) -> None:
    unmount_below(layout.folder)
    if network.bridge_owner() in (None, str(layout.folder)):
        network.remove()
    if state:
        node.write_sysctls(state.sysctls)
    _remove_shim_sockets(layout)
    for folder in CNI_RESULTS:
        for file in folder.glob("*") if folder.is_dir() else ():
            with contextlib.suppress(OSError):
                if str(layout.folder) in file.read_text(errors="replace"):
                    file.unlink()
    for link in CONTAINER_LOGS.glob("*") if CONTAINER_LOGS.is_dir() else ():
        with contextlib.suppress(OSError):
            if link.is_symlink() and os.readlink(link).startswith(f"{layout.folder}/"):
                link.unlink()
    _remove_dead_socket(DEVICE_SOCKET)
    _remove_empty(SHARED)
    _remove_cgroups()


def mounts_below(mountinfo: str, folder: Path) -> list[str]:
    """The mount points below a folder in the text of /proc/self/mountinfo, the deepest first."""
    points = []
    for line in mountinfo.splitlines():
        point = line.split()[4]
        for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
            point = point.replace(code, character)
        if point.startswith(f"{folder}/"):
            points.append(point)
    return sorted(points, key=lambda point: (point.count("/"), point), reverse=True)


def unmount_below(folder: Path) -> None:
    """Unmounts everything below a folder; twice, as one mount can hide another."""
    for _ in range(2):
        for point in mounts_below(Path("/proc/self/mountinfo").read_text(), folder):
            network.run("umount", "--lazy", point, check=False)


def _remove_shim_sockets(layout: Layout) -> None:
    # A shim that was killed leaves its socket in a folder that all containerds share; its own folder names it.
    for pattern in ("address", "bootstrap.json"):
        for file in (layout.containerd / "state").glob(f"io.containerd.runtime.v2.task/*/*/{pattern}"):
            with contextlib.suppress(OSError):
                text = file.read_text()
                for word in text.replace('"', " ").replace(",", " ").split():
                    if word.startswith(f"unix://{SHIM_SOCKETS}/"):
                        Path(word.removeprefix("unix://")).unlink(missing_ok=True)


def _remove_dead_socket(path: Path) -> None:
    """A socket that nobody listens to any more, which is how a kubelet that was ended leaves its own."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:
            # Not there, or it does not answer at once: not known to be dead.
            return


def _remove_empty(folders: Iterable[Path]) -> None:
    """Folders in which nothing is left; whoever needs one makes it again."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _remove_cgroups() -> None:
    """The kubelet's cgroups, where they are empty: one in use by another kubelet cannot be removed."""
    for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/*"):
        for pods in Path("/").glob(f"{top.lstrip('/')}/kubepods"):
            for folder, _, _ in os.walk(pods, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)


def _remove_files(layout: Layout) -> None:
    kept = {layout.log.name}
    deadline = time.monotonic() + 10
    while True:
        for entry in layout.folder.iterdir() if layout.folder.is_dir() else ():
            if entry.name in kept:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        left = (
            [entry.name for entry in layout.folder.iterdir() if entry.name not in kept]
            if layout.folder.is_dir()
            else []
        )
        if not left:
            return
        if time.monotonic() > deadline:
            say(f"could not remove {', '.join(left)} in {layout.folder}")
            return
        time.sleep(0.2)
