"""The one bridge that is the node's network, and what must be undone on the machine afterwards.

Touches nothing but its own bridge, the interfaces on it, kube-proxy's tables and rules with our comment.
"""

import json
import subprocess
from pathlib import Path

from . import debian
from .layout import BRIDGE, CLUSTER_CIDR, NODE_ADDRESS, NODE_PREFIX, POD_CIDR, Layout
from .say import Problem

COMMENT = "lanekeeper-dev-cluster"
PROXY_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"))


def run(*command: str, check: bool = True) -> str:
    """The output of a system program."""
    done = subprocess.run(
        [debian.program(command[0]), *command[1:]], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if check and done.returncode != 0:
        raise Problem(f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout if done.returncode == 0 else ""


def links(*arguments: str) -> list[dict]:
    """Interfaces, as `ip -json link show` tells them."""
    text = run("ip", "-json", "link", "show", *arguments, check=False)
    return [link for link in json.loads(text or "[]") if link]


def bridge_owner() -> str | None:
    """The cluster folder that the bridge was made for; "" for a bridge without a note, none without a bridge."""
    found = links("dev", BRIDGE)
    return found[0].get("ifalias", "") if found else None


def bridge_is_unfinished() -> bool:
    """Whether a bridge is there that a start, killed at that very moment, has not yet marked as its own."""
    found = links("dev", BRIDGE)
    return bool(found) and "ifalias" not in found[0] and "UP" not in found[0]["flags"]


def create_bridge(layout: Layout) -> None:
    """The bridge with the node's address. Its alias says whose it is, and is there before the bridge is up."""
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "link", "set", BRIDGE, "alias", str(layout.folder))
    run("ip", "address", "replace", f"{NODE_ADDRESS}/{NODE_PREFIX}", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    # For this interface alone: the machine does not become a router for others.
    Path(f"/proc/sys/net/ipv4/conf/{BRIDGE}/forwarding").write_text("1")
    allow_forwarding()


def pods_pass_netfilter() -> bool:
    """Whether traffic between two pods on the bridge passes netfilter, where Services are translated back.

    Without it an answer would go straight to the client, from an address it never called.
    """
    run_quietly("modprobe", "br_netfilter")
    switch = Path(f"/sys/class/net/{BRIDGE}/bridge/nf_call_iptables")
    if not Path("/proc/sys/net/bridge").is_dir() or not switch.exists():
        return False
    switch.write_text("1")
    return True


def allow_forwarding() -> None:
    """Docker and firewalls drop what they do not know; let the bridge's traffic pass where that is so."""
    if "-P FORWARD DROP" not in run("iptables", "-S", "FORWARD", check=False):
        return
    for direction in ("-i", "-o"):
        run("iptables", "-w", "-I", "FORWARD", direction, BRIDGE, *_comment(), "-j", "ACCEPT")


def remove() -> None:
    """Undoes everything above and kube-proxy's tables. Fine to call when nothing is there."""
    if bridge_owner() is not None:
        for link in links("master", BRIDGE):
            run("ip", "link", "delete", link["ifname"], check=False)
        run("ip", "link", "delete", BRIDGE, check=False)
    if COMMENT in run("iptables", "-S", "FORWARD", check=False):
        for direction in ("-i", "-o"):
            run("iptables", "-w", "-D", "FORWARD", direction, BRIDGE, *_comment(), "-j", "ACCEPT", check=False)
    for family, table in PROXY_TABLES:
        run("nft", "delete", "table", family, table, check=False)


def run_quietly(*command: str) -> None:
    """Runs a program that may be missing or may fail, both without consequence."""
    try:
        run(*command, check=False)
    except Problem:
        return


def conflist(addresses: Path) -> dict:
    """The network of the pods. No `isGateway`: the bridge has its address, and with it the plugin would switch
    on forwarding for the whole machine."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_CIDR, "gateway": NODE_ADDRESS}]],
        "routes": [{"dst": "0.0.0.0/0", "gw": NODE_ADDRESS}],
        "dataDir": str(addresses),
    }
    bridge = {"type": "bridge", "bridge": BRIDGE, "hairpinMode": True, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "lanekeeper", "plugins": [bridge, portmap]}


def proxy_config(kubeconfig: Path, node: str, masquerade_all: bool) -> dict:
    """kube-proxy: nftables, on the bridge's address, leaving the machine's connection tracking as it is."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": node,
        "bindAddress": NODE_ADDRESS,
        "clusterCIDR": CLUSTER_CIDR,
        "nodePortAddresses": [f"{NODE_ADDRESS}/32"],
        "metricsBindAddress": f"{NODE_ADDRESS}:10249",
        "healthzBindAddress": f"{NODE_ADDRESS}:10256",
        "nftables": {"masqueradeAll": masquerade_all},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
    }


def _comment() -> tuple[str, ...]:
    return ("-m", "comment", "--comment", COMMENT)
