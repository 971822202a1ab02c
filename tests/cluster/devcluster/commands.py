"""The command line. Results go to stdout, one line each; everything else to stderr.

Exit codes: 0 done, 1 a problem (said in words), 2 wrong usage, 3 `status` of a cluster that is not running.
"""

import argparse
import json
import os
import signal
import tempfile
from pathlib import Path

from . import cache, choice, image, lifecycle, processes, tools
from . import layout as places
from .layout import Layout
from .say import Problem, say

STOPPED = 3


def main(arguments: list[str]) -> int:
    """Runs one command; the process's exit code."""
    options = _parser().parse_args(arguments)
    # Told to end, clean up as after Ctrl-C: half a cluster helps nobody.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return options.run(options) or 0
    except Problem as problem:
        say(str(problem))
        return 1
    except BrokenPipeError:
        # Whoever read our output has seen enough (`cluster.py status | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster.py", description="The dev cluster and the tools of the tests.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    def folder(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--dir", type=Path, help=f"the cluster's folder (default: {places.default_folder(places.FULL)})"
        )

    command("path", _path, "print the path of one tool, built or fetched when missing").add_argument("name")
    command("tools", _tools, "make all tools (or those named) available and list them").add_argument(
        "names", nargs="*", metavar="NAME"
    )
    start = command("start", _start, "start a cluster, or find the one that runs; prints a JSON line")
    folder(start)
    start.add_argument(
        "--control-plane-only",
        action="store_true",
        help="etcd, API server and controllers on loopback; no root, no pods",
    )
    start.add_argument(
        "--until-pid", type=int, metavar="PID", help="end the cluster and remove its folder when that process is gone"
    )
    start.add_argument(
        "--audit-log", type=Path, metavar="FILE", help="write the API server's audit log (level Metadata)"
    )
    folder(command("stop", _stop, "end the cluster and undo all that it did to the machine"))
    command("free", _free, "fail when this machine cannot take a whole cluster now, and say what to do")
    folder(command("status", _status, "say how the cluster is; exit code 0 healthy, 1 not, 3 stopped"))
    folder(command("kubeconfig", _kubeconfig, "print the path of the cluster's kubeconfig"))
    use = command("use", _use, f"make the cluster chosen by {choice.VARIABLE} usable; prints a JSON line")
    folder(use)
    load = command("load", _load, "put image archives into the cluster")
    folder(load)
    load.add_argument("archives", nargs="+", type=Path, metavar="IMAGE.tar")
    build = command("image", _image, "make an image archive of static files")
    build.add_argument("output", type=Path, metavar="OUT.tar")
    build.add_argument("name", help="for example localhost/worker:dev")
    build.add_argument("--entrypoint", required=True, metavar="JSON", help="for example '[\"/worker\"]'")
    build.add_argument("--user", type=int, default=65532, help="numeric user and group (default 65532)")
    build.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    build.add_argument("files", nargs="+", metavar="FILE=PATH")
    folder(command("watch", _watch, "(internal) what --until-pid starts"))
    return parser


def _path(options: argparse.Namespace) -> None:
    print(tools.path(options.name))


def _tools(options: argparse.Namespace) -> None:
    names = options.names or list(tools.TOOLS)
    width = max(len(name) for name in names)
    for name in names:
        found = tools.path(name)
        print(f"{name:{width}}  {found.stat().st_size / 1e6:8.1f} MB  {found}", flush=True)


def _start(options: argparse.Namespace) -> None:
    mode = places.CONTROL_PLANE if options.control_plane_only else places.FULL
    if options.dir is None and options.control_plane_only and options.until_pid is not None:
        # Nobody can name it later, and nobody needs to: it goes with its owner.
        cache.root().mkdir(parents=True, exist_ok=True)
        options.dir = Path(tempfile.mkdtemp(prefix="control-plane-", dir=cache.root()))
    layout = Layout(options.dir or places.default_folder(mode))
    audit_log = str(options.audit_log.absolute()) if options.audit_log else ""
    print(json.dumps(lifecycle.start(layout, mode, audit_log, options.until_pid)), flush=True)


def _layout(options: argparse.Namespace) -> Layout:
    return Layout(options.dir or places.default_folder(places.FULL))


def _stop(options: argparse.Namespace) -> None:
    layout = _layout(options)
    say(f"stopped {layout.folder}" if lifecycle.stop(layout) else f"nothing runs in {layout.folder}")


def _free(_: argparse.Namespace) -> None:
    lifecycle.check_free()


def _status(options: argparse.Namespace) -> int:
    layout = _layout(options)
    state = layout.read_state()
    if state is None:
        print(f"stopped: no cluster in {layout.folder}")
        return STOPPED
    for name in processes.recorded(layout):
        pid = processes.running(layout, name)
        print(f"{name:24} {'pid ' + str(pid) if pid else 'ENDED':12} {layout.log_of(name)}")
    wrong = lifecycle.problems(layout, state)
    for problem in wrong:
        print(f"problem: {problem}")
    print(f"{'unhealthy' if wrong else 'healthy'}: {state.mode} mode, {state.api}")
    print(f"export KUBECONFIG={layout.kubeconfig}")
    if state.mode == places.FULL:
        print(f"export CONTAINERD_ADDRESS={layout.containerd_socket}   # then: ctr -n k8s.io containers ls")
    return 1 if wrong else 0


def _kubeconfig(options: argparse.Namespace) -> None:
    layout = _layout(options)
    if layout.read_state() is None:
        raise Problem(f"no cluster in {layout.folder}; start it first")
    print(layout.kubeconfig)


def _use(options: argparse.Namespace) -> None:
    print(json.dumps(choice.use(options.dir)), flush=True)


def _load(options: argparse.Namespace) -> None:
    choice.load(options.archives, options.dir)


def _image(options: argparse.Namespace) -> None:
    name = image.check_name(options.name)
    if not 0 <= options.user < 2**31:
        raise Problem(f"--user {options.user}: expected a number from 0 to {2**31 - 1}")
    files = image.parse_files(options.files)
    made = image.Image(name, image.parse_entrypoint(options.entrypoint), files, options.user, tuple(options.env))
    made.write(options.output)
    say(f"{options.output}: {name}, {options.output.stat().st_size / 1e6:.1f} MB")


def _watch(options: argparse.Namespace) -> None:
    os.chdir("/")
    lifecycle.watch(_layout(options))
