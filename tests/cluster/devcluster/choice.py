"""Which cluster to use: ours, one that kind makes in Docker, or the one of the user's kubectl.

The user decides, by LANEKEEPER_CLUSTER; nothing is guessed, since a wrong guess would install things into
somebody's real cluster.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

from . import cache, lifecycle, node, tools
from . import layout as places
from .layout import Layout
from .say import Problem, say

VARIABLE = "LANEKEEPER_CLUSTER"
PREFIX = "LANEKEEPER_IMAGE_PREFIX"
CHOICES = ("own", "kind", "current")


def chosen() -> str:
    """The user's choice."""
    choice = os.environ.get(VARIABLE) or "own"
    if choice not in CHOICES:
        raise Problem(f"{VARIABLE}={choice}: expected one of {', '.join(CHOICES)}")
    return choice


def kind_name() -> str:
    """The name of the kind cluster; the variable is kind's own."""
    return os.environ.get("KIND_CLUSTER_NAME") or "lanekeeper"


def use(folder: Path | None) -> dict[str, str]:
    """Makes the chosen cluster usable. What `use` prints."""
    choice = chosen()
    if choice == "own":
        return lifecycle.start(Layout(folder or places.default_folder(places.FULL)), places.FULL)
    return _use_kind() if choice == "kind" else _use_current()


def load(archives: list[Path], folder: Path | None) -> None:
    """Puts images into the chosen cluster."""
    for archive in archives:
        if not archive.is_file():
            raise Problem(f"{archive}: there is no such image archive")
    choice = chosen()
    if choice == "current":
        raise Problem(
            f"{VARIABLE}=current: images reach your cluster through your registry. Push them there\n"
            f"  (for example: docker load --input {archives[0]}; docker tag ...; docker push ...) and name the place\n"
            f"  in {PREFIX}, for example {PREFIX}=registry.example.com/team"
        )
    for archive in archives:
        if choice == "kind":
            _run_kind("load", "image-archive", str(archive), "--name", kind_name())
            continue
        layout = Layout(folder or places.default_folder(places.FULL))
        state = layout.read_state()
        if state is None or state.mode != places.FULL:
            raise Problem(
                f"no full cluster runs in {layout.folder}; start it first: cluster.py start --dir {layout.folder}"
            )
        for line in node.ctr(layout, "images", "import", str(archive)).splitlines():
            say(line)


def _use_kind() -> dict[str, str]:
    if shutil.which("kind") is None:
        raise Problem(f"{VARIABLE}=kind: `kind` was not found on PATH (https://kind.sigs.k8s.io)")
    name = kind_name()
    cache.root().mkdir(parents=True, exist_ok=True)
    if name not in _run_kind("get", "clusters").split():
        say(f"creating the kind cluster {name}")
        # Its own kubeconfig file: the user's current context stays what it is.
        _run_kind(
            "create", "cluster", "--name", name, "--kubeconfig", str(cache.root() / "kind.partial"), "--wait", "180s"
        )
    kubeconfig = cache.root() / f"kind-{name}.kubeconfig"
    (cache.root() / "kind.partial").unlink(missing_ok=True)
    _run_kind("export", "kubeconfig", "--name", name, "--kubeconfig", str(kubeconfig))
    return {"kubeconfig": str(kubeconfig), "dir": "", "mode": "kind"}


def _use_current() -> dict[str, str]:
    prefix = os.environ.get(PREFIX)
    if not prefix:
        raise Problem(
            f"{VARIABLE}=current: set {PREFIX} to where the cluster pulls images from, like registry.example.com/team"
        )
    kubectl = str(tools.path("kubectl"))
    context = _run_kubectl(kubectl, "config", "current-context")
    if context.returncode != 0:
        raise Problem(f"{VARIABLE}=current: kubectl has no current context: {context.stderr.strip()}")
    reached = _run_kubectl(kubectl, "version", "--output=json", "--request-timeout=10s")
    if reached.returncode != 0 or "serverVersion" not in json.loads(reached.stdout or "{}"):
        name = context.stdout.strip()
        raise Problem(f"{VARIABLE}=current: the cluster of context {name} does not answer: {reached.stderr.strip()}")
    kubeconfig = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return {
        "kubeconfig": kubeconfig,
        "dir": "",
        "mode": "current",
        "context": context.stdout.strip(),
        "imagePrefix": prefix,
    }


def _run_kubectl(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def _run_kind(*arguments: str) -> str:
    done = subprocess.run(["kind", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Problem(f"kind {' '.join(arguments)} failed: {done.stderr.strip()[-1000:]}")
    return done.stdout
