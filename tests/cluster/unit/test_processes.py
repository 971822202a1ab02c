"""Which processes are ours, and how they end."""

import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from devcluster import processes, waiting
from devcluster.layout import Layout
from devcluster.say import Problem


class Processes(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.layout = Layout(Path(folder.name))
        self.layout.make()
        self.addCleanup(lambda: processes.end(processes.marked(self.layout), 0))

    def start(self, name: str, *command: str) -> int:
        processes.start(self.layout, name, list(command))
        pid = processes.running(self.layout, name)
        self.assertIsNotNone(pid)
        return pid

    def test_a_started_process_is_found_by_its_record_and_by_its_mark(self) -> None:
        pid = self.start("sleeper", "sleep", "60")
        self.assertEqual(processes.recorded(self.layout), ["sleeper"])
        waiting.until(self.layout, "the mark", lambda: processes.marked(self.layout) == [pid], ["sleeper"], 10)

    def test_a_recycled_pid_is_not_taken_for_ours(self) -> None:
        (self.layout.pid / "other").write_text(f'{{"pid": {os.getpid()}, "identity": "another boot/1"}}')
        self.assertIsNone(processes.running(self.layout, "other"))

    def test_an_unreadable_record_is_no_process(self) -> None:
        for text in ("", "7", "{}", '{"pid": "x", "identity": "y"}', '{"pid": 1, "identity": null}'):
            (self.layout.pid / "odd").write_text(text)
            self.assertIsNone(processes.running(self.layout, "odd"), text)

    def test_a_polite_process_ends_by_sigterm_and_a_deaf_one_by_sigkill(self) -> None:
        polite = self.start("polite", "sleep", "60")
        ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        script = f"{ignore}; print('deaf', flush=True); time.sleep(60)"
        deaf = self.start("deaf", sys.executable, "-c", script)
        said = lambda: "deaf" in self.layout.log_of("deaf").read_text()
        waiting.until(self.layout, "the deaf process to be deaf", said, ["deaf"], 10)
        processes.end([polite, deaf], 0.5)
        self.assertEqual(processes.marked(self.layout), [])
        self.assertIsNone(processes.identity(deaf))

    def test_the_children_of_a_process_are_found_with_theirs(self) -> None:
        pid = self.start("parent", "sh", "-c", "sh -c 'sleep 60; true' ; true")
        waiting.until(
            self.layout, "child and grandchild", lambda: len(processes.descendants([pid])) == 2, ["parent"], 10
        )

    def test_a_zombie_counts_as_ended(self) -> None:
        child = subprocess.Popen(["true"])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        self.assertIsNone(processes.identity(child.pid))
        child.wait()

    def test_waiting_for_a_process_that_ended_shows_its_last_words(self) -> None:
        processes.start(self.layout, "brief", ["sh", "-c", "echo bad flag; exit 1"])
        with self.assertRaisesRegex(Problem, "brief ended while waiting for luck(?s:.*)bad flag"):
            waiting.until(self.layout, "luck", lambda: False, ["brief"], 10)

    def test_waiting_ends_at_the_deadline(self) -> None:
        pid = self.start("sleeper", "sleep", "60")
        with self.assertRaisesRegex(Problem, "luck: not within"):
            waiting.until(self.layout, "luck", lambda: False, ["sleeper"], 0.2)
        os.kill(pid, signal.SIGKILL)
