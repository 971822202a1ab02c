"""CoreDNS as a process beside the kubelet, and the Service that pods know it by.

It answers for the cluster's own names and for no others.
"""

import http.client

from . import layout as places
from . import processes, tools
from .api import Api
from .layout import Layout
from .say import Problem

COREDNS = "coredns"
READY_PORT = 8181


def start(layout: Layout, api: Api) -> None:
    """Writes its objects and starts it."""
    corefile = layout.config / "Corefile"
    corefile.write_text(
        f"""{places.DOMAIN}:53 in-addr.arpa:53 {{
  bind {places.NODE_ADDRESS}
  errors
  ready {places.NODE_ADDRESS}:{READY_PORT}
  kubernetes {places.DOMAIN} in-addr.arpa {{
    kubeconfig "{layout.config}/{COREDNS}.kubeconfig"
    ttl 5
  }}
}}
# Names outside the cluster do not exist: nothing outside this machine is asked.
.:53 {{
  bind {places.NODE_ADDRESS}
  errors
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""
    )
    for path, manifest in objects():
        status, text = api.apply(path, manifest)
        if status not in (200, 201):
            raise Problem(f"applying {path}: the API server answered {status}: {text[:500]}")
    processes.start(layout, COREDNS, [str(tools.path("coredns")), "-conf", str(corefile)])


def ready() -> bool:
    """Whether CoreDNS has read the Services."""

    connection = http.client.HTTPConnection(places.NODE_ADDRESS, READY_PORT, timeout=2)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def objects() -> list[tuple[str, dict]]:
    """The Service of CoreDNS with its one fixed endpoint, and what CoreDNS may read."""
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    metadata = {"name": "kube-dns", "namespace": "kube-system"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"clusterIP": places.DNS_ADDRESS, "ports": ports},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "kube-dns"}},
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [{"addresses": [places.NODE_ADDRESS], "conditions": {"ready": True}}],
    }
    rbac = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["services", "namespaces", "pods"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "system:coredns"}, "rules": rules}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:coredns"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "system:coredns"}],
    }
    return [
        ("/api/v1/namespaces/kube-system/services/kube-dns", service),
        ("/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns", endpoints),
        (f"/apis/{rbac}/v1/clusterroles/system:coredns", role),
        (f"/apis/{rbac}/v1/clusterrolebindings/system:coredns", binding),
    ]
