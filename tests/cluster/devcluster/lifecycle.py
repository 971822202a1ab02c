"""Start, stop and status of a cluster in a folder, each of them safe to repeat.

The order of things is here; what each thing is, is in controlplane, node, network and cleanup.
"""

import hashlib
import os
import select
import shutil
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

from . import cache, cleanup, controlplane, debian, dns, network, node, pki, processes, tools
from . import layout as places
from .gobuild import HERE
from .layout import Layout, State
from .say import Problem, say

PORT_ATTEMPTS = 3


def guarded(layout: Layout) -> AbstractContextManager[None]:
    """One start or stop of a folder at a time."""
    name = hashlib.sha256(str(layout.folder).encode()).hexdigest()[:16]
    waiting = f"waiting for another process that starts or stops {layout.folder}"
    return cache.lock(f"cluster-{name}", waiting, forget=lambda: not layout.state_file.exists())


def start(layout: Layout, mode: str, audit_log: str = "", until_pid: int | None = None) -> dict[str, str]:
    """A healthy cluster in the folder: the one that runs, or a new one. What `start` prints."""
    if not sys.platform.startswith("linux"):
        raise Problem("the dev cluster runs on Linux only; use LANEKEEPER_CLUSTER=kind or current elsewhere")
    if until_pid is not None and processes.identity(until_pid) is None:
        raise Problem(f"--until-pid {until_pid}: there is no such process")
    pki.check()
    if mode == places.FULL:
        controlplane.check_root()
        debian.ensure()
    _fetch(mode)
    with guarded(layout):
        state = layout.read_state()
        if state and not problems(layout, state):
            _check_same(state, mode, audit_log, layout)
            if until_pid is not None and layout.owners.is_dir():
                _own(layout, until_pid)
            return description(layout, state)
        if cleanup.stop(layout):
            say(f"cleaned up after an earlier run in {layout.folder}")
        state = _start_new(layout, mode, audit_log, until_pid)
    return description(layout, state)


def check_free() -> None:
    """That a whole cluster can be started here: asked before minutes of other work, changes nothing."""
    controlplane.check_root()
    running = network.bridge_owner() if debian.has("ip") else None
    if not running:
        return
    layout = Layout(Path(running))
    state = layout.read_state()
    # What a crash left behind is no obstacle: the next start cleans it up.
    if state and not problems(layout, state):
        if layout.owners.is_dir():
            how = "wait for the test run that started it, and ends it"
        elif layout.folder == Layout(places.default_folder(places.FULL)).folder:
            how = "end it first (make demo-stop)"
        else:
            how = f"end it first (cluster.py stop --dir {running})"
        raise Problem(f"a whole cluster runs in {running}, and this machine has place for one: {how}")


def stop(layout: Layout) -> bool:
    """Ends the cluster; whether there was one."""
    with guarded(layout):
        return cleanup.stop(layout)


def description(layout: Layout, state: State) -> dict[str, str]:
    """What other programs need to know."""
    return {"kubeconfig": str(layout.kubeconfig), "dir": str(layout.folder), "mode": state.mode}


def problems(layout: Layout, state: State) -> list[str]:
    """What is wrong with a cluster; nothing when it is healthy."""
    if not state.ready:
        return ["its start was cut short"]
    expected = controlplane.COMPONENTS + (node.COMPONENTS if state.mode == places.FULL else ())
    found = [
        f"{name} is not running; see {layout.log_of(name)}" for name in expected if not processes.running(layout, name)
    ]
    if found:
        return found
    api = controlplane.client(layout, state.api)
    if not api.ready():
        return [f"the API server at {state.api} is not ready; see {layout.log_of(controlplane.APISERVER)}"]
    if state.mode == places.FULL:
        if not node.node_ready(api):
            found.append(f"the node is not ready; see {layout.log_of(node.KUBELET)}")
        if not dns.ready():
            found.append(f"CoreDNS is not ready; see {layout.log_of(dns.COREDNS)}")
    return found


def watch(layout: Layout) -> None:
    """The watchdog: when none of the owners is alive, the cluster goes, its folder too."""
    while True:
        owners = _owners(layout)
        if not owners:
            with guarded(layout):
                # One may have come while we waited for the lock.
                if not _owners(layout):
                    cleanup.stop(layout)
                    shutil.rmtree(layout.folder, ignore_errors=True)
                    return
        else:
            _sleep_until_one_ends(owners)


def _fetch(mode: str) -> None:
    """Gets every tool before anything is started, since that may take minutes."""
    if mode == places.FULL:
        for name in ("kube", "coredns", "pause-image"):
            tools.path(name)


def _check_same(state: State, mode: str, audit_log: str, layout: Layout) -> None:
    if state.mode != mode:
        raise Problem(
            f"{layout.folder} holds a running cluster in {state.mode} mode; stop it first or use another --dir"
        )
    if audit_log and state.audit_log != audit_log:
        running = f"writes {state.audit_log}" if state.audit_log else "writes none"
        raise Problem(f"--audit-log {audit_log}: the running cluster in {layout.folder} {running}; stop it first")


def _start_new(layout: Layout, mode: str, audit_log: str, until_pid: int | None) -> State:
    started = time.monotonic()
    say(f"starting a cluster ({mode} mode) in {layout.folder}")
    for attempt in range(1, PORT_ATTEMPTS + 1):
        try:
            state = _bring_up(layout, mode, audit_log, until_pid)
            break
        except BaseException as error:
            unlucky = isinstance(error, Problem) and mode == places.CONTROL_PLANE and controlplane.lost_a_port(layout)
            cleanup.stop(layout)
            if not unlucky or attempt == PORT_ATTEMPTS:
                raise
            say("another program took a port in between; trying again")
    say(f"ready after {time.monotonic() - started:.1f} s: {state.api}, logs in {layout.log}")
    return state


def _bring_up(layout: Layout, mode: str, audit_log: str, until_pid: int | None) -> State:
    where = controlplane.endpoints(mode)
    full = mode == places.FULL
    shutil.rmtree(layout.log, ignore_errors=True)
    layout.make()
    state = State(mode, where.api, audit_log=audit_log, sysctls=node.read_sysctls() if full else {})
    if full:
        _check_length(layout)
        _take_machine(layout)
    layout.write_state(state)
    if until_pid is not None:
        layout.owners.mkdir(exist_ok=True)
        _own(layout, until_pid)
        processes.start(
            layout, cleanup.WATCHDOG, [sys.executable, str(HERE / "cluster.py"), "watch", "--dir", str(layout.folder)]
        )
    authority = controlplane.issue(layout, where)
    if full:
        node.issue(layout, authority, where.api)
        network.create_bridge(layout)
        node.start_containerd(layout)
    controlplane.start(layout, mode, where, audit_log)
    api = controlplane.client(layout, where.api)
    controlplane.wait(layout, api)
    if full:
        say("the API server is ready; starting the node")
        node.start(layout, api)
        node.wait(layout, api)
    state.ready = True
    layout.write_state(state)
    return state


def _take_machine(layout: Layout) -> None:
    """One full cluster per machine: the bridge's name and addresses are fixed."""
    owner = network.bridge_owner()
    if owner is None:
        if network.run("nft", "list", "table", *network.PROXY_TABLES[0], check=False):
            raise Problem(
                "this machine has kube-proxy's nftables table, so it seems to be a node of another Kubernetes,\n"
                "  which a second one would disturb. If nothing uses it: nft delete table ip kube-proxy"
            )
        return
    if network.bridge_is_unfinished():
        network.remove()
        return
    if not owner:
        raise Problem(
            f"an interface {places.BRIDGE} exists that is not this program's; remove it: ip link delete {places.BRIDGE}"
        )
    other = Layout(Path(owner))
    state = other.read_state()
    if state and not problems(other, state):
        raise Problem(
            f"a full cluster already runs on this machine, in {owner}\n  stop it first: cluster.py stop --dir {owner}"
        )
    if cleanup.stop(other):
        say(f"cleaned up after an earlier run in {owner}")


def _check_length(layout: Layout) -> None:
    # The kernel's limit for the path of a socket; containerd adds ".ttrpc" to the name of its own.
    length = len(f"{layout.containerd_socket}.ttrpc".encode())
    if length > 107:
        raise Problem(
            f"{layout.folder}: this path is {length - 107} bytes too long for containerd's socket; use another --dir"
        )


def _own(layout: Layout, pid: int) -> None:
    (layout.owners / str(pid)).write_text(processes.identity(pid) or "")


def _owners(layout: Layout) -> list[int]:
    files = list(layout.owners.iterdir()) if layout.owners.is_dir() else []
    return [int(file.name) for file in files if processes.identity(int(file.name)) == file.read_text()]


def _sleep_until_one_ends(pids: list[int]) -> None:
    poller = select.poll()
    handles = []
    for pid in pids:
        try:
            handles.append(os.pidfd_open(pid))
        except OSError:
            continue
    try:
        for handle in handles:
            poller.register(handle, select.POLLIN)
        # Bounded, to notice owners that came later.
        poller.poll(2000 if handles else 0)
    finally:
        for handle in handles:
            os.close(handle)
