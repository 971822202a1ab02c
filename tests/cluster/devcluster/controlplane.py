"""etcd, the API server and the controller manager: enough for everything but pods.

Every listener is on loopback, or, in full mode, on the bridge's address for the API server alone.
"""

import json
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from . import kubeconfig, processes, tools, waiting
from . import layout as places
from .api import Api
from .layout import Layout
from .pki import Authority, Identity
from .say import Problem, say, tail

START_SECONDS = 120.0
ETCD, APISERVER, CONTROLLER_MANAGER = "etcd", "kube-apiserver", "kube-controller-manager"
COMPONENTS = (ETCD, APISERVER, CONTROLLER_MANAGER)


@dataclass(frozen=True)
class Endpoints:
    """The addresses of one start."""

    etcd: int
    etcd_peer: int
    host: str
    port: int

    @property
    def api(self) -> str:
        """The API server's address."""
        return f"https://{self.host}:{self.port}"


def free_ports(count: int) -> list[int]:
    """Ports that the system says are free on loopback; all held until all are known, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def endpoints(mode: str) -> Endpoints:
    """Where this start will listen."""
    etcd, peer, port = free_ports(3)
    if mode == places.FULL:
        return Endpoints(etcd, peer, places.NODE_ADDRESS, places.API_PORT)
    return Endpoints(etcd, peer, "127.0.0.1", port)


def binaries(mode: str) -> dict[str, list[str]]:
    """How each component is called: the user's own three where all three are at hand, else the kube program.

    All or none: a controller manager must not be newer than its API server.
    """
    if mode == places.CONTROL_PLANE:
        assets = os.environ.get("KUBEBUILDER_ASSETS", "")
        search = os.pathsep.join(part for part in (assets, os.environ.get("PATH", "")) if part)
        found = {name: shutil.which(name, path=search) for name in COMPONENTS}
        if all(found.values()):
            say(f"using {', '.join(str(program) for program in found.values())}")
            return {name: [str(program)] for name, program in found.items()}
        if assets:
            missing = [name for name, program in found.items() if program is None]
            say(
                f"KUBEBUILDER_ASSETS={assets}: no {', '.join(missing)} there or on PATH; using the kube program instead"
            )
    kube = str(tools.path("kube"))
    return {name: [kube, name] for name in COMPONENTS}


def issue(layout: Layout, where: Endpoints) -> Authority:
    """The certificates and kubeconfigs of the control plane and its administrator."""
    authority = Authority(layout.pki)
    authority.create()
    authority.signing_key("service-accounts")
    authority.issue(Identity("etcd", "etcd", names=("IP:127.0.0.1", "DNS:localhost")))
    addresses = dict.fromkeys(("127.0.0.1", places.KUBERNETES_ADDRESS, where.host))
    names = (
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        f"kubernetes.default.svc.{places.DOMAIN}",
    )
    alternative = (*(f"IP:{address}" for address in addresses), *(f"DNS:{name}" for name in names))
    authority.issue(Identity("apiserver", "kube-apiserver", names=alternative))
    authority.issue(Identity("apiserver-to-kubelet", "kube-apiserver-kubelet-client", "system:masters"))
    identify(layout, authority, where.api, Identity("admin", "admin", "system:masters"), layout.kubeconfig)
    manager = Identity(CONTROLLER_MANAGER, "system:kube-controller-manager")
    identify(layout, authority, where.api, manager, layout.config / f"{CONTROLLER_MANAGER}.kubeconfig")
    return authority


def identify(layout: Layout, authority: Authority, api: str, identity: Identity, file: Path) -> None:
    """A certificate for a client and the kubeconfig that carries it."""
    certificate, key = authority.issue(identity)
    kubeconfig.write(file, kubeconfig.text(api, authority.certificate, certificate, key))


def client(layout: Layout, api: str) -> Api:
    """A client with the administrator's rights."""
    return Api(api, layout.pki / "ca.crt", layout.pki / "admin.crt", layout.pki / "admin.key")


def start(layout: Layout, mode: str, where: Endpoints, audit_log: str) -> None:
    """Starts the three; they wait for each other by themselves."""
    programs = binaries(mode)
    processes.start(layout, ETCD, programs[ETCD] + etcd_flags(layout, where))
    processes.start(layout, APISERVER, programs[APISERVER] + apiserver_flags(layout, mode, where, audit_log))
    processes.start(layout, CONTROLLER_MANAGER, programs[CONTROLLER_MANAGER] + controller_manager_flags(layout))


def wait(layout: Layout, api: Api) -> None:
    """Until the API server is ready and the controllers were seen to work."""
    waiting.until(layout, "the API server to be ready", api.ready, (ETCD, APISERVER), START_SECONDS)
    # It has no health port (see its flags); the account that it makes in each namespace shows that it works.
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    seen = lambda: api.get(account) is not None and bool(_root_certificate(api))
    waiting.until(layout, "the controller manager to make the default service account", seen, COMPONENTS, START_SECONDS)


def _root_certificate(api: Api) -> dict | None:
    return api.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")


def etcd_flags(layout: Layout, where: Endpoints) -> list[str]:
    """One member, on loopback, for holders of a certificate only; no fsync, as the data ends with the cluster."""
    pair = [f"{layout.pki}/etcd.crt", f"{layout.pki}/etcd.key", f"{layout.pki}/ca.crt"]
    client_url = f"https://127.0.0.1:{where.etcd}"
    peer_url = f"https://127.0.0.1:{where.etcd_peer}"
    flags = {
        "name": "default",
        "data-dir": str(layout.etcd),
        "listen-client-urls": client_url,
        "advertise-client-urls": client_url,
        "listen-peer-urls": peer_url,
        "initial-advertise-peer-urls": peer_url,
        "initial-cluster": f"default={peer_url}",
        "cert-file": pair[0],
        "key-file": pair[1],
        "trusted-ca-file": pair[2],
        "client-cert-auth": "true",
        "peer-cert-file": pair[0],
        "peer-key-file": pair[1],
        "peer-trusted-ca-file": pair[2],
        "peer-client-cert-auth": "true",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }
    return as_flags(flags)


def apiserver_flags(layout: Layout, mode: str, where: Endpoints, audit_log: str) -> list[str]:
    """A stock API server: its defaults for admission, and RBAC."""
    pki = layout.pki
    flags = {
        "etcd-servers": f"https://127.0.0.1:{where.etcd}",
        "etcd-cafile": f"{pki}/ca.crt",
        "etcd-certfile": f"{pki}/etcd.crt",
        "etcd-keyfile": f"{pki}/etcd.key",
        "bind-address": where.host,
        "advertise-address": where.host,
        "secure-port": str(where.port),
        "tls-cert-file": f"{pki}/apiserver.crt",
        "tls-private-key-file": f"{pki}/apiserver.key",
        "client-ca-file": f"{pki}/ca.crt",
        "service-account-issuer": f"https://kubernetes.default.svc.{places.DOMAIN}",
        "service-account-key-file": f"{pki}/service-accounts.pub",
        "service-account-signing-key-file": f"{pki}/service-accounts.key",
        "service-cluster-ip-range": places.SERVICE_CIDR,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "kubelet-client-certificate": f"{pki}/apiserver-to-kubelet.crt",
        "kubelet-client-key": f"{pki}/apiserver-to-kubelet.key",
        "kubelet-certificate-authority": f"{pki}/ca.crt",
        "kubelet-preferred-address-types": "InternalIP",
        "profiling": "false",
    }
    if mode == places.CONTROL_PLANE:
        # An endpoint on loopback is refused, over and over, in the log; nobody could use it.
        flags["endpoint-reconciler-type"] = "none"
    if audit_log:
        policy = layout.config / "audit-policy.json"
        rules = [{"level": "Metadata", "omitStages": ["RequestReceived"]}]
        policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}) + "\n")
        flags |= {"audit-policy-file": str(policy), "audit-log-path": audit_log}
    return as_flags(flags)


def controller_manager_flags(layout: Layout) -> list[str]:
    """The stock controllers, with an account each; no port, as nobody scrapes it."""
    return as_flags(
        {
            "kubeconfig": f"{layout.config}/{CONTROLLER_MANAGER}.kubeconfig",
            "use-service-account-credentials": "true",
            "service-account-private-key-file": f"{layout.pki}/service-accounts.key",
            "root-ca-file": f"{layout.pki}/ca.crt",
            "leader-elect": "false",
            "secure-port": "0",
            # Its default of 20 requests a second makes the first start of all controllers take 4 s longer.
            "kube-api-qps": "500",
            "kube-api-burst": "500",
        }
    )


def as_flags(flags: dict[str, str]) -> list[str]:
    """`--name=value` for each."""
    return [f"--{name}={value}" for name, value in flags.items()]


def lost_a_port(layout: Layout) -> bool:
    """Whether a server found its port taken, by someone who came between our question and its start."""
    return any(
        not processes.running(layout, name) and "address already in use" in tail(layout.log_of(name), 40)
        for name in (ETCD, APISERVER)
    )


def check_root() -> None:
    """Full mode needs root; say what else there is."""
    if os.geteuid() != 0:
        raise Problem(
            "the full cluster runs a kubelet and containerd and so needs root.\n"
            "  - run the same command with `sudo -E`, or\n"
            "  - use Docker and kind: LANEKEEPER_CLUSTER=kind, or\n"
            "  - use the cluster that your kubectl talks to: LANEKEEPER_CLUSTER=current\n"
            "  The API server alone needs no root: cluster.py start --control-plane-only"
        )
