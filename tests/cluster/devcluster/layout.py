"""Where things are: the addresses of the cluster and the files of one cluster folder.

Pure: no file is made and no process is started here.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import cache

FULL = "full"
CONTROL_PLANE = "control-plane"

NODE_NAME = "lanekeeper"
BRIDGE = "lanek0"
# The bridge's own address is the node's: loopback is refused as a node address, and an address that only
# this machine and its pods can reach is the one thing that the servers may listen on.
NODE_ADDRESS = "10.244.0.1"
NODE_PREFIX = 24
POD_CIDR = "10.244.0.0/24"
CLUSTER_CIDR = "10.244.0.0/16"
SERVICE_CIDR = "10.96.0.0/16"
KUBERNETES_ADDRESS = "10.96.0.1"
DNS_ADDRESS = "10.96.0.10"
DOMAIN = "cluster.local"
API_PORT = 6443
KUBELET_PORT = 10250


@dataclass
class State:
    """What a later call must know about the cluster in a folder; written before anything is started."""

    mode: str
    api: str
    # Set only when every part was seen working; a start that was cut short is cleaned up, not continued.
    ready: bool = False
    audit_log: str = ""
    # Kernel settings that the kubelet changes, as they were.
    sysctls: dict[str, str] = field(default_factory=dict)


class Layout:
    """The files of one cluster folder."""

    def __init__(self, folder: Path) -> None:
        # Resolved, because the kernel's mount table, which the clean-up reads, knows no symbolic links.
        self.folder = folder.resolve()
        self.pki = self.folder / "pki"
        self.log = self.folder / "log"
        self.pid = self.folder / "pid"
        self.config = self.folder / "config"
        self.owners = self.folder / "owners"
        self.etcd = self.folder / "etcd"
        self.containerd = self.folder / "containerd"
        self.containerd_socket = self.folder / "containerd.sock"
        self.kubelet = self.folder / "kubelet"
        self.cni = self.folder / "cni"
        self.addresses = self.folder / "addresses"
        self.kubeconfig = self.folder / "kubeconfig"
        self.state_file = self.folder / "state.json"

    def log_of(self, process: str) -> Path:
        """The log of one of the cluster's processes."""
        return self.log / f"{process}.log"

    def make(self) -> None:
        """Makes the folders; only the owner may look inside, for the keys are there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in (self.pki, self.log, self.pid, self.config):
            part.mkdir(exist_ok=True)
        self.pki.chmod(0o700)

    def read_state(self) -> State | None:
        """The state, or none when no cluster was started here (or nothing readable is left of it)."""
        try:
            return State(**json.loads(self.state_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write_state(self, state: State) -> None:
        """Replaces the state file in one step."""
        partial = self.state_file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(state), indent=2) + "\n")
        partial.rename(self.state_file)


def default_folder(mode: str) -> Path:
    """The folder of the cluster that is meant when none is named."""
    return cache.root() / ("cluster" if mode == FULL else "control-plane")
