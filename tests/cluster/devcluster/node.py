"""The node: containerd, kubelet, scheduler, kube-proxy and CoreDNS, on top of a control plane.

Own root, state, socket and configuration for each: nothing of a system-wide containerd or kubelet is used.
"""

import json
import subprocess
from pathlib import Path

from . import controlplane, debian, dns, network, processes, tools, waiting
from . import layout as places
from .api import Api
from .layout import Layout
from .pki import Authority, Identity
from .say import Problem

NODE_SECONDS = 120.0
CONTAINERD, KUBELET, SCHEDULER, PROXY = "containerd", "kubelet", "kube-scheduler", "kube-proxy"
COMPONENTS = (CONTAINERD, KUBELET, SCHEDULER, PROXY, dns.COREDNS)
# The kubelet sets these for the whole machine; stop puts them back.
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def read_sysctls() -> dict[str, str]:
    """The kernel settings that the kubelet will change, as they are now."""
    files = {name: Path("/proc/sys") / name for name in SYSCTLS}
    return {name: file.read_text().strip() for name, file in files.items() if file.exists()}


def write_sysctls(values: dict[str, str]) -> None:
    """Puts kernel settings back."""
    for name, value in values.items():
        file = Path("/proc/sys") / name
        if name in SYSCTLS and file.exists() and file.read_text().strip() != value:
            file.write_text(value)


def issue(layout: Layout, authority: Authority, api: str) -> None:
    """The identities of the node's parts, each with the rights that Kubernetes has for it and no more."""
    authority.issue(Identity("kubelet", places.NODE_NAME, names=(f"IP:{places.NODE_ADDRESS}",)))
    identities = (
        Identity(f"{KUBELET}-client", f"system:node:{places.NODE_NAME}", "system:nodes"),
        Identity(SCHEDULER, "system:kube-scheduler"),
        Identity(PROXY, "system:kube-proxy"),
        Identity(dns.COREDNS, "system:coredns"),
    )
    for identity in identities:
        file = layout.config / f"{identity.file.removesuffix('-client')}.kubeconfig"
        controlplane.identify(layout, authority, api, identity, file)


def start_containerd(layout: Layout) -> None:
    """containerd, as soon as possible: it needs no API server."""
    layout.cni.mkdir(exist_ok=True)
    (layout.cni / "10-lanekeeper.conflist").write_text(json.dumps(network.conflist(layout.addresses), indent=2) + "\n")
    config = layout.config / "containerd.toml"
    mounts = Path("/proc/self/mountinfo").read_text()
    config.write_text(containerd_config(layout, snapshotter(filesystem(mounts, layout.folder))))
    command = [debian.program("containerd"), "--config", str(config)]
    processes.start(layout, CONTAINERD, command, extra_path=debian.SEARCH)


def filesystem(mountinfo: str, folder: Path) -> str:
    """The type of the file system that holds a folder, from the text of /proc/self/mountinfo."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        point, rest = line.split()[4], line.partition(" - ")[2]
        if len(point) >= len(best) and f"{folder}/".startswith(point.rstrip("/") + "/"):
            best, kind = point, rest.split()[0]
    return kind


def snapshotter(kind: str) -> str:
    """How containerd stacks layers: an overlay cannot lie on another one (a cluster inside a container)."""
    return "native" if kind in ("overlay", "fuse.fuse-overlayfs", "nfs", "nfs4") else "overlayfs"


def containerd_config(layout: Layout, snapshots: str) -> str:
    """Version 2 of the format: 1.6 (Debian 12) and 1.7 speak it, 2.x translates it."""
    return f"""version = 2
root = "{layout.containerd}/root"
state = "{layout.containerd}/state"
# The first would make /opt/containerd, the others look for storage that is not there.
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "{layout.containerd_socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{tools.PAUSE_IMAGE}"
stream_server_address = "127.0.0.1"
# Root in a container or a small virtual machine often lacks CAP_SYS_RESOURCE; without this every sandbox
# then fails with "can't get final child's PID from pipe: EOF".
restrict_oom_score_adj = true
# So that this cluster's network namespaces are known from all others on the machine.
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{debian.cni_folder()}"
conf_dir = "{layout.cni}"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshots}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

# runc's records would else be in a folder that all containerds share, and stay there when a shim is killed.
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "{layout.containerd}/runc"
"""


def start(layout: Layout, api: Api) -> None:
    """The parts that need a ready API server."""
    masquerade_all = not network.pods_pass_netfilter()
    kube = str(tools.path("kube"))
    ctr(layout, "version")
    ctr(layout, "images", "import", str(tools.path("pause-image")))
    kubelet = layout.config / "kubelet.json"
    kubelet.write_text(json.dumps(kubelet_config(layout), indent=2) + "\n")
    flags = {
        "config": str(kubelet),
        "kubeconfig": f"{layout.config}/{KUBELET}.kubeconfig",
        "root-dir": str(layout.kubelet),
        "hostname-override": places.NODE_NAME,
        "node-ip": places.NODE_ADDRESS,
    }
    processes.start(layout, KUBELET, [kube, KUBELET, *controlplane.as_flags(flags)], extra_path=debian.SEARCH)
    scheduler = {"kubeconfig": f"{layout.config}/{SCHEDULER}.kubeconfig", "leader-elect": "false", "secure-port": "0"}
    processes.start(layout, SCHEDULER, [kube, SCHEDULER, *controlplane.as_flags(scheduler)])
    proxy = layout.config / "kube-proxy.json"
    config = network.proxy_config(layout.config / f"{PROXY}.kubeconfig", places.NODE_NAME, masquerade_all)
    proxy.write_text(json.dumps(config, indent=2) + "\n")
    processes.start(layout, PROXY, [kube, PROXY, f"--config={proxy}"], extra_path=debian.SEARCH)
    dns.start(layout, api)


def wait(layout: Layout, api: Api) -> None:
    """Until the node takes pods, and names and Services work."""
    everything = (*controlplane.COMPONENTS, *COMPONENTS)
    waiting.until(layout, "the node to be ready", lambda: node_ready(api), everything, NODE_SECONDS)
    waiting.until(layout, "CoreDNS to be ready", dns.ready, everything, NODE_SECONDS)
    table = lambda: bool(network.run("nft", "list", "table", "ip", "kube-proxy", check=False))
    waiting.until(layout, "kube-proxy to write its rules", table, everything, NODE_SECONDS)


def node_ready(api: Api) -> bool:
    """Whether the node says that it takes pods and no taint keeps them away."""
    node = api.get(f"/api/v1/nodes/{places.NODE_NAME}")
    if node is None or node["spec"].get("taints"):
        return False
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def ctr(layout: Layout, *arguments: str) -> str:
    """containerd's own client, on our containerd, in the kubelet's namespace."""
    command = [debian.program("ctr"), "--address", str(layout.containerd_socket), "--namespace", "k8s.io", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Problem(f"ctr {' '.join(arguments)} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def kubelet_config(layout: Layout) -> dict:
    """A kubelet that leaves disk and memory of the machine alone, and listens on the bridge only."""
    pki = layout.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": places.NODE_ADDRESS,
        "port": places.KUBELET_PORT,
        "healthzBindAddress": places.NODE_ADDRESS,
        "healthzPort": 10248,
        "tlsCertFile": f"{pki}/kubelet.crt",
        "tlsPrivateKeyFile": f"{pki}/kubelet.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        # Works on cgroup v1 as well, and without systemd.
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        # A developer's nearly full disk must not evict the tests' pods.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "clusterDNS": [places.DNS_ADDRESS],
        "clusterDomain": places.DOMAIN,
        "resolvConf": "/dev/null",
        "podCIDR": places.POD_CIDR,
        "podLogsDir": str(layout.log / "pods"),
        "volumePluginDir": f"{layout.kubelet}/volume-plugins",
        # kube-proxy speaks nftables; the kubelet's old iptables chains would only be left behind.
        "makeIPTablesUtilChains": False,
    }
