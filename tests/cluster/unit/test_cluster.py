"""What the cluster's parts are told, and what is cleaned up: the pure half."""

import contextlib
import io
import json
import os
import socket
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

from devcluster import choice, cleanup, commands, controlplane, debian, lifecycle, network, node
from devcluster import layout as places
from devcluster.layout import Layout, State
from devcluster.say import Problem

MOUNTINFO = r"""
22 1 254:0 / / rw - ext4 /dev/root rw
40 22 0:30 / /state/cluster rw - tmpfs tmpfs rw
41 22 0:31 / /state/cluster/a rw - tmpfs tmpfs rw
42 22 0:32 / /state/cluster/a/b\040c/d rw - overlay overlay rw
43 22 0:33 / /state/cluster2/a rw - tmpfs tmpfs rw
44 22 0:4 net:[4026532] /state/cluster/netns/cni-1 rw - nsfs nsfs rw
"""


class Parts(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.layout = Layout(Path(folder.name))

    def test_mounts_are_found_deepest_first_and_only_below_the_folder(self) -> None:
        found = cleanup.mounts_below(MOUNTINFO.strip(), Path("/state/cluster"))
        self.assertEqual(found, ["/state/cluster/a/b c/d", "/state/cluster/netns/cni-1", "/state/cluster/a"])

    def test_only_a_socket_that_nobody_listens_to_is_removed(self) -> None:
        path = self.layout.folder / "kubelet.sock"
        cleanup._remove_dead_socket(path)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            cleanup._remove_dead_socket(path)
            self.assertTrue(path.exists())
        cleanup._remove_dead_socket(path)
        self.assertFalse(path.exists())

    def test_shared_folders_go_only_when_nothing_is_left_in_them(self) -> None:
        empty, used = self.layout.folder / "s", self.layout.folder / "results"
        (empty / "inner").mkdir(parents=True)
        used.mkdir()
        (used / "somebody's").touch()
        cleanup._remove_empty((empty / "inner", empty, used, self.layout.folder / "none"))
        self.assertFalse(empty.exists())
        self.assertTrue((used / "somebody's").exists())
        for outer in cleanup.SHARED:
            inner = [each for each in cleanup.SHARED[cleanup.SHARED.index(outer) :] if outer in each.parents]
            self.assertEqual(inner, [], f"{outer} comes before what is in it")

    def test_containers_have_all_their_records_in_the_cluster_s_folder(self) -> None:
        with mock.patch.object(debian, "cni_folder", return_value="/usr/lib/cni"):
            config = tomllib.loads(node.containerd_config(self.layout, "native"))
        runc = config["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]["runc"]
        for place in (config["root"], config["state"], runc["options"]["Root"]):
            self.assertIn(self.layout.folder, Path(place).parents)

    def test_layers_are_not_stacked_on_a_file_system_that_is_stacked_itself(self) -> None:
        lines = ("/ rw - overlay overlay rw", "/var rw - ext4 /dev/a rw", "/variable rw - tmpfs t rw")
        mounts = "\n".join(f"1 0 0:1 / {line}" for line in lines)
        self.assertEqual(node.filesystem(mounts, Path("/srv/x")), "overlay")
        self.assertEqual(node.filesystem(mounts, Path("/var/x")), "ext4")
        self.assertEqual(node.filesystem(mounts, Path("/var")), "ext4")
        self.assertEqual(node.snapshotter("overlay"), "native")
        self.assertEqual(node.snapshotter("ext4"), "overlayfs")

    def test_no_component_is_told_to_listen_on_every_address(self) -> None:
        self.layout.make()
        for mode in (places.FULL, places.CONTROL_PLANE):
            where = controlplane.endpoints(mode)
            flags = controlplane.etcd_flags(self.layout, where) + controlplane.apiserver_flags(
                self.layout, mode, where, ""
            )
            self.assertNotIn("0.0.0.0", " ".join(flags))
            self.assertIn(f"--bind-address={'10.244.0.1' if mode == places.FULL else '127.0.0.1'}", flags)
        configs = json.dumps([node.kubelet_config(self.layout), network.proxy_config(Path("k"), "n", False)])
        self.assertNotIn('"0.0.0.0', configs)

    def test_free_ports_differ(self) -> None:
        self.assertEqual(len(set(controlplane.free_ports(20))), 20)

    def test_own_binaries_are_used_when_all_three_are_there_and_else_none(self) -> None:
        assets = self.layout.folder / "assets"
        assets.mkdir()
        environment = {"KUBEBUILDER_ASSETS": str(assets), "PATH": "/nowhere"}
        with mock.patch.dict(os.environ, environment), mock.patch.object(controlplane, "say"):
            for name in controlplane.COMPONENTS:
                with mock.patch.object(controlplane.tools, "path", return_value=Path("/cache/kube")):
                    self.assertEqual(controlplane.binaries(places.CONTROL_PLANE)[name], ["/cache/kube", name])
                (assets / name).touch(mode=0o755)
            self.assertEqual(controlplane.binaries(places.CONTROL_PLANE)["etcd"], [str(assets / "etcd")])

    def test_the_full_cluster_never_uses_foreign_binaries(self) -> None:
        with mock.patch.object(controlplane.tools, "path", return_value=Path("/cache/kube")):
            self.assertEqual(controlplane.binaries(places.FULL)["etcd"], ["/cache/kube", "etcd"])

    def test_state_is_read_back_and_an_unreadable_one_is_none(self) -> None:
        self.layout.make()
        self.assertIsNone(self.layout.read_state())
        state = State(places.FULL, "https://x:1", audit_log="/a", sysctls={"kernel/panic": "0"})
        self.layout.write_state(state)
        self.assertEqual(self.layout.read_state(), state)
        for text in ("", "[]", '{"mode": "full"}', '{"mode": "full", "api": "x", "later": 1}'):
            self.layout.state_file.write_text(text)
            self.assertIsNone(self.layout.read_state(), text)

    def test_only_kernel_settings_of_the_kubelet_are_written_back(self) -> None:
        with mock.patch.object(Path, "write_text", side_effect=AssertionError("written")):
            node.write_sysctls({"kernel/hostname": "stolen", **node.read_sysctls()})


class Commands(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.enterContext(mock.patch.dict(os.environ, {"LANEKEEPER_CACHE": folder.name}))

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = commands.main(list(arguments))
        return code, output.getvalue(), errors.getvalue()

    def test_status_of_nothing_is_three_and_stop_of_nothing_is_fine(self) -> None:
        self.assertEqual(self.call("status", "--dir", f"{self.folder}/none")[0], 3)
        self.assertEqual(self.call("stop", "--dir", f"{self.folder}/none")[0], 0)

    def test_a_problem_is_said_on_stderr_and_stdout_stays_empty(self) -> None:
        code, output, errors = self.call("path", "nonsense")
        self.assertEqual((code, output), (1, ""))
        self.assertIn("unknown tool `nonsense`", errors)

    def test_a_dead_owner_is_refused(self) -> None:
        code, _, errors = self.call(
            "start", "--control-plane-only", "--dir", f"{self.folder}/c", "--until-pid", "4194304"
        )
        self.assertEqual(code, 1)
        self.assertIn("--until-pid 4194304: there is no such process", errors)

    def test_without_root_the_full_mode_names_the_alternatives(self) -> None:
        with mock.patch.object(os, "geteuid", return_value=1000):
            code, _, errors = self.call("start", "--dir", f"{self.folder}/c")
        self.assertEqual(code, 1)
        for words in ("needs root", "sudo -E", "LANEKEEPER_CLUSTER=kind", "--control-plane-only"):
            self.assertIn(words, errors)

    def test_a_machine_is_free_unless_a_healthy_cluster_runs_and_the_answer_says_how_to_end_it(self) -> None:
        def free(folder: str, wrong: list[str]) -> tuple[int, str]:
            layout = Layout(Path(folder))
            layout.make()
            layout.write_state(State(places.FULL, "https://x:1", ready=True))
            with (
                mock.patch.object(os, "geteuid", return_value=0),
                mock.patch.object(debian, "has", return_value=True),
                mock.patch.object(network, "bridge_owner", return_value=folder),
                mock.patch.object(lifecycle, "problems", return_value=wrong),
            ):
                code, _, errors = self.call("free")
            return code, errors

        default = str(places.default_folder(places.FULL))
        self.assertEqual(free(default, ["etcd is not running"]), (0, ""))
        code, errors = free(default, [])
        self.assertEqual((code, errors.count("\n")), (1, 1))
        self.assertIn("end it first (make demo-stop)", errors)
        code, errors = free(f"{self.folder}/other", [])
        self.assertEqual(code, 1)
        self.assertIn(f"end it first (cluster.py stop --dir {self.folder}/other)", errors)
        Path(self.folder, "other", "owners").mkdir()
        self.assertIn("wait for the test run", free(f"{self.folder}/other", [])[1])

    def test_an_unknown_choice_of_cluster_is_answered_with_the_known_ones(self) -> None:
        with (
            mock.patch.dict(os.environ, {choice.VARIABLE: "minikube"}),
            self.assertRaisesRegex(Problem, "own, kind, current"),
        ):
            choice.chosen()

    def test_kind_that_is_not_installed_is_said_so(self) -> None:
        with mock.patch.dict(os.environ, {choice.VARIABLE: "kind", "PATH": "/nowhere"}):
            code, _, errors = self.call("use")
        self.assertEqual(code, 1)
        self.assertIn("`kind` was not found on PATH", errors)

    def test_the_current_cluster_needs_a_place_for_the_images(self) -> None:
        with mock.patch.dict(os.environ, {choice.VARIABLE: "current", choice.PREFIX: ""}):
            code, _, errors = self.call("use")
        self.assertEqual(code, 1)
        self.assertIn(choice.PREFIX, errors)
