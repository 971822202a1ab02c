#!/usr/bin/env python3
"""Starts the real thing and looks at it: the control plane alone, and, as root, a whole cluster with pods.

    ./smoke.py                 everything (the full part is an error without root, not skipped)
    ./smoke.py ControlPlane    one part

Takes about two minutes. The full part needs the machine's one full cluster: stop yours first.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

from devcluster import cleanup, debian, network, node, processes
from devcluster import layout as places
from devcluster.gobuild import GoProgram
from devcluster.layout import Layout

HERE = Path(__file__).resolve().parent
CLUSTER = str(HERE / "cluster.py")
IMAGE = "localhost/lanekeeper-probe:smoke"
SECONDS = 90.0


def cluster(*arguments: str, expect: int = 0) -> str:
    """One call of cluster.py; its standard output."""
    done = subprocess.run([CLUSTER, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != expect:
        raise AssertionError(f"cluster.py {' '.join(arguments)}: exit code {done.returncode}, expected {expect}")
    return done.stdout


def until(what: str, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Waits for a condition with a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.1)


class Kubectl:
    """kubectl for one cluster."""

    def __init__(self, kubeconfig: str) -> None:
        self.command = [cluster("path", "kubectl").strip(), "--kubeconfig", kubeconfig]

    def __call__(self, *arguments: str, stdin: object = None) -> str:
        done = self.attempt(*arguments, stdin=stdin)
        if done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout

    def attempt(self, *arguments: str, stdin: object = None) -> subprocess.CompletedProcess:
        """A call that may fail."""
        text = json.dumps(stdin) if stdin is not None else None
        return subprocess.run([*self.command, *arguments], input=text, capture_output=True, text=True)


def pod(name: str, arguments: list[str], sidecar: list[str] | None = None, restart: str = "Never") -> dict:
    """A pod that the restricted Pod Security level admits."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"image": IMAGE, "imagePullPolicy": "IfNotPresent", "securityContext": security}
    spec: dict = {"restartPolicy": restart, "containers": [{"name": "main", **container, "args": arguments}]}
    if sidecar:
        spec["initContainers"] = [{"name": "sidecar", **container, "args": sidecar, "restartPolicy": "Always"}]
    metadata = {"name": name, "namespace": "smoke", "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def namespace() -> dict:
    """A namespace as strict as Kubernetes has them."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "smoke", "labels": labels}}


class ControlPlane(unittest.TestCase):
    """The API server alone, owned by this process."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.owner = subprocess.Popen(["sleep", "600"])
        cls.addClassCleanup(cls.owner.kill)
        cls.audit = Path(tempfile.mkdtemp()) / "audit.log"
        arguments = ("--control-plane-only", "--until-pid", str(cls.owner.pid), "--audit-log", str(cls.audit))
        cls.started = json.loads(cluster("start", *arguments))
        cls.kubectl = Kubectl(cls.started["kubeconfig"])

    def test_1_a_namespace_is_created_and_goes_with_all_that_is_in_it(self) -> None:
        self.kubectl("apply", "-f", "-", stdin=namespace())
        self.kubectl("-n", "smoke", "create", "configmap", "thing")
        until(
            "the default service account",
            lambda: not self.kubectl.attempt("-n", "smoke", "get", "sa", "default").returncode,
        )
        self.kubectl("delete", "namespace", "smoke", f"--timeout={SECONDS:.0f}s")
        self.assertIn("NotFound", self.kubectl.attempt("get", "namespace", "smoke").stderr)

    def test_2_admission_works_as_in_a_stock_server(self) -> None:
        self.kubectl("create", "namespace", "limited")
        self.kubectl("label", "namespace", "limited", "pod-security.kubernetes.io/enforce=restricted")
        self.kubectl("-n", "limited", "create", "quota", "none", "--hard=configmaps=0,pods=0")
        until(
            "the service account", lambda: not self.kubectl.attempt("-n", "limited", "get", "sa", "default").returncode
        )
        plain = self.kubectl.attempt("-n", "limited", "run", "plain", "--image=none")
        self.assertIn("PodSecurity", plain.stderr)
        quota = lambda: (
            "exceeded quota"
            in self.kubectl.attempt("-n", "limited", "create", "configmap", "one", "--dry-run=server").stderr
        )
        until("the quota to be enforced", quota)

    def test_3_owners_take_their_dependents_along(self) -> None:
        self.kubectl("create", "configmap", "owner")
        uid = self.kubectl("get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
        reference = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]
        dependent = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "dependent", "namespace": "default", "ownerReferences": reference},
        }
        self.kubectl("apply", "-f", "-", stdin=dependent)
        self.kubectl("delete", "configmap", "owner")
        until(
            "the dependent to be collected",
            lambda: "NotFound" in self.kubectl.attempt("get", "configmap", "dependent").stderr,
        )

    def test_4_two_control_planes_run_side_by_side_and_a_second_start_finds_the_first(self) -> None:
        again = json.loads(cluster("start", "--control-plane-only", "--dir", self.started["dir"]))
        self.assertEqual(again, self.started)
        with tempfile.TemporaryDirectory() as folder:
            other = json.loads(cluster("start", "--control-plane-only", "--dir", folder))
            self.assertNotEqual(other["kubeconfig"], self.started["kubeconfig"])
            self.assertNotIn("limited", Kubectl(other["kubeconfig"])("get", "namespaces"))
            cluster("stop", "--dir", folder)
            cluster("status", "--dir", folder, expect=3)
            self.assertEqual(processes.marked(Layout(Path(folder))), [])
        cluster("status", "--dir", self.started["dir"])

    def test_5_everything_listens_on_loopback_only(self) -> None:
        self.assertEqual(strangers(Layout(Path(self.started["dir"])), ("127.0.0.1",)), [])

    def test_6_the_audit_log_names_writes(self) -> None:
        self.kubectl("create", "configmap", "audited")
        written = lambda: any(
            '"audited"' in line and '"create"' in line for line in self.audit.read_text().splitlines()
        )
        until("the audit log to name the write", written)

    def test_7_a_killed_process_is_noticed_and_start_recovers(self) -> None:
        folder = tempfile.mkdtemp()
        cluster("start", "--control-plane-only", "--dir", folder)
        layout = Layout(Path(folder))
        os.kill(processes.running(layout, "etcd"), 9)
        cluster("status", "--dir", folder, expect=1)
        cluster("start", "--control-plane-only", "--dir", folder)
        cluster("status", "--dir", folder)
        cluster("stop", "--dir", folder)
        cluster("stop", "--dir", folder)
        shutil.rmtree(folder)

    def test_8_it_goes_with_its_owner(self) -> None:
        layout = Layout(Path(self.started["dir"]))
        self.assertGreater(len(processes.marked(layout)), 3)
        self.owner.kill()
        self.owner.wait()
        until("the folder to be removed", lambda: not layout.folder.exists())
        until("the last process to end", lambda: not processes.marked(layout))
        shutil.rmtree(self.audit.parent)


class Full(unittest.TestCase):
    """A whole cluster with real pods."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.before, cls.shared = machine(), shared()
        cls.folder = tempfile.mkdtemp(prefix="lanekeeper-smoke-")
        cls.layout = Layout(Path(cls.folder))
        cls.started = json.loads(cluster("start", "--dir", cls.folder))
        cls.addClassCleanup(cluster, "stop", "--dir", cls.folder)
        cls.kubectl = Kubectl(cls.started["kubeconfig"])
        probe = GoProgram("probe", "probe", ".", "").ensure()
        archive = f"{cls.folder}/probe.tar"
        cluster("image", archive, IMAGE, "--entrypoint", '["/probe"]', f"{probe}=/probe")
        cluster("load", "--dir", cls.folder, archive)
        cls.kubectl("apply", "-f", "-", stdin=namespace())
        until("the service account", lambda: not cls.kubectl.attempt("-n", "smoke", "get", "sa", "default").returncode)
        cls.kubectl("apply", "-f", "-", stdin=pod("server", ["serve", ":8080", "hello"]))
        cls.kubectl("-n", "smoke", "expose", "pod", "server", "--port=80", "--target-port=8080")
        cls.wait("server", "condition=Ready")

    @classmethod
    def wait(cls, name: str, condition: str) -> None:
        done = cls.kubectl.attempt(
            "-n", "smoke", "wait", f"pod/{name}", f"--for={condition}", f"--timeout={SECONDS:.0f}s"
        )
        if done.returncode != 0:
            raise AssertionError(done.stderr + cls.kubectl.attempt("-n", "smoke", "describe", "pod", name).stdout)

    def run_pod(self, name: str, arguments: list[str], sidecar: list[str] | None = None) -> str:
        """Runs a pod to its end; its log."""
        self.kubectl("apply", "-f", "-", stdin=pod(name, arguments, sidecar))
        ended = lambda: self.phase(name) in ("Succeeded", "Failed")
        until(f"pod {name} to end", ended)
        log = self.kubectl("-n", "smoke", "logs", name, "-c", "main")
        self.assertEqual(self.phase(name), "Succeeded", log)
        return log

    def phase(self, name: str) -> str:
        return self.kubectl("-n", "smoke", "get", "pod", name, "-o", "jsonpath={.status.phase}")

    def test_1_a_pod_resolves_a_service_name(self) -> None:
        self.assertIn("10.96.", self.run_pod("lookup", ["lookup", "server.smoke.svc.cluster.local"]))
        self.assertEqual(self.run_pod("lookup-short", ["lookup", "kubernetes.default"]).strip(), "[10.96.0.1]")

    def test_2_a_pod_reaches_a_service_also_when_it_is_its_own(self) -> None:
        self.assertEqual(self.run_pod("client", ["get", "http://server/"]), "hello\n")
        self.assertEqual(
            self.kubectl("-n", "smoke", "exec", "server", "--", "/probe", "get", "http://server.smoke.svc/"), "hello\n"
        )

    def test_3_a_native_sidecar_runs_beside_the_main_container_and_ends_after_it(self) -> None:
        log = self.run_pod(
            "with-sidecar", ["get", "http://127.0.0.1:8081/"], ["serve", "127.0.0.1:8081", "from beside"]
        )
        self.assertEqual(log, "from beside\n")
        self.assertIn("ended by SIGTERM", self.kubectl("-n", "smoke", "logs", "with-sidecar", "-c", "sidecar"))

    def test_4_logs_exec_proxy_and_port_forward_work(self) -> None:
        self.assertIn("serving as user 65532", self.kubectl("-n", "smoke", "logs", "server"))
        self.assertIn(
            "10.96.0.1", self.kubectl("-n", "smoke", "exec", "server", "--", "/probe", "lookup", "kubernetes.default")
        )
        self.assertEqual(self.kubectl("get", "--raw", "/api/v1/namespaces/smoke/services/server:80/proxy/"), "hello\n")
        self.assertEqual(self.kubectl("get", "--raw", "/api/v1/namespaces/smoke/pods/server:8080/proxy/"), "hello\n")
        forward = subprocess.Popen(
            [*self.kubectl.command, "-n", "smoke", "port-forward", "service/server", ":80"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            port = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())
            probe = GoProgram("probe", "probe", ".", "").ensure()
            answer = subprocess.run(
                [str(probe), "get", f"http://127.0.0.1:{port.group(1)}/"], capture_output=True, text=True
            )
            self.assertEqual(answer.stdout, "hello\n", answer.stderr)
        finally:
            forward.kill()
            forward.wait()
            forward.stdout.close()

    def test_5_a_deleted_pod_is_told_by_sigterm(self) -> None:
        self.kubectl("apply", "-f", "-", stdin=pod("mortal", ["serve", ":8080", "hi"]))
        self.wait("mortal", "condition=Ready")
        follow = subprocess.Popen(
            [*self.kubectl.command, "-n", "smoke", "logs", "-f", "mortal"], stdout=subprocess.PIPE, text=True
        )
        self.assertIn("serving", follow.stdout.readline())
        self.kubectl("-n", "smoke", "delete", "pod", "mortal", f"--timeout={SECONDS:.0f}s")
        self.assertIn("ended by SIGTERM", follow.communicate(timeout=SECONDS)[0])

    def test_6_everything_listens_on_loopback_and_the_bridge_only(self) -> None:
        self.assertEqual(strangers(self.layout, ("127.0.0.1", places.NODE_ADDRESS)), [])

    def test_7_a_second_start_finds_the_first_and_another_folder_is_refused(self) -> None:
        self.assertEqual(json.loads(cluster("start", "--dir", self.folder)), self.started)
        cluster("status", "--dir", self.folder)
        with tempfile.TemporaryDirectory() as other:
            cluster("start", "--dir", other, expect=1)
        self.assertEqual(self.phase("server"), "Running")

    def test_8_a_start_after_a_crash_of_everything_gives_a_working_cluster(self) -> None:
        for name in processes.recorded(self.layout):
            os.kill(processes.running(self.layout, name), 9)
        self.assertEqual(json.loads(cluster("start", "--dir", self.folder)), self.started)
        cluster("status", "--dir", self.folder)
        cluster("load", "--dir", self.folder, self.archive_again())
        self.kubectl("apply", "-f", "-", stdin=namespace())
        until("the service account", lambda: not self.kubectl.attempt("-n", "smoke", "get", "sa", "default").returncode)
        self.kubectl("apply", "-f", "-", stdin=pod("server", ["serve", ":8080", "hello"]))
        self.wait("server", "condition=Ready")

    def archive_again(self) -> str:
        """The image once more, as a new cluster knows no images."""
        probe = GoProgram("probe", "probe", ".", "").ensure()
        archive = f"{self.folder}/probe.tar"
        cluster("image", archive, IMAGE, "--entrypoint", '["/probe"]', f"{probe}=/probe")
        return archive

    def test_9_stop_leaves_nothing_behind(self) -> None:
        self.assertGreater(len(processes.marked(self.layout)), 8)
        cluster("stop", "--dir", self.folder)
        cluster("stop", "--dir", self.folder)
        cluster("status", "--dir", self.folder, expect=3)
        until("the machine to be as before", lambda: machine() == self.before, 20)
        self.assertEqual(processes.marked(self.layout), [])
        self.assertEqual([entry.name for entry in self.layout.folder.iterdir()], ["log"])
        self.assertEqual(shared() - self.shared, set())
        # Here and not in a clean-up: the logs of a run that failed are wanted.
        shutil.rmtree(self.layout.folder)

    def tearDown(self) -> None:
        if self._testMethodName.startswith("test_9") and machine() != self.before:
            print(f"before: {self.before}\nafter:  {machine()}", file=sys.stderr)


def machine() -> dict[str, object]:
    """What a cluster may change on a machine, as it is now."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    containers = Path("/var/log/containers")
    return {
        "mounts": sorted(line.split()[4] for line in mounts),
        "namespaces": sorted(network.run("ip", "netns", "list", check=False).splitlines()),
        "links": sorted(link["ifname"] for link in network.links()),
        "tables": sorted(network.run("nft", "list", "tables", check=False).splitlines()) if debian.has("nft") else [],
        "cgroups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob("*/kubepods")),
        "container logs": sorted(str(path) for path in containers.glob("*")),
        "sysctls": {**node.read_sysctls(), "forward": Path("/proc/sys/net/ipv4/ip_forward").read_text()},
    }


def shared() -> set[Path]:
    """What is in the folders that all containerds and kubelets of a machine share, and which of these there are.

    A cluster adds nothing to it. It may have less afterwards: empty folders and dead sockets go, whosever they were.
    """
    folders = {*cleanup.SHARED, Path("/run/containerd/runc"), *Path("/run/containerd/runc").glob("*")}
    return {path for folder in folders if folder.is_dir() for path in (folder, *folder.iterdir())}


def strangers(layout: Layout, allowed: tuple[str, ...]) -> list[str]:
    """Listening sockets of the cluster's processes on other addresses."""
    own = {f"pid={pid}," for pid in processes.marked(layout)}
    listening = [line for line in network.run("ss", "-Hlntup").splitlines() if any(pid in line for pid in own)]
    assert listening, "no listening socket was found at all"
    return [line for line in listening if line.split()[4].rpartition(":")[0] not in allowed]


if __name__ == "__main__":
    unittest.main(verbosity=2)
