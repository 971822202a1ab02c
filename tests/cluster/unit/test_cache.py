"""The cache: keys, whole or absent, one builder at a time."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from devcluster import cache
from devcluster.say import Problem

ROOT = Path(__file__).resolve().parent.parent


class Cache(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.enterContext(mock.patch.dict(os.environ, {"LANEKEEPER_CACHE": folder.name}))

    def test_the_folder_follows_the_environment(self) -> None:
        self.assertEqual(cache.root(), self.root)
        with mock.patch.dict(os.environ, {"LANEKEEPER_CACHE": "", "XDG_CACHE_HOME": "/x"}):
            self.assertEqual(cache.root(), Path("/x/lanekeeper"))
        with mock.patch.dict(os.environ, {"LANEKEEPER_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/h"}):
            self.assertEqual(cache.root(), Path("/h/.cache/lanekeeper"))

    def test_a_key_changes_with_content_name_and_words_and_with_nothing_else(self) -> None:
        one, two = self.root / "one", self.root / "two"
        one.write_text("a")
        two.write_text("b")
        first = cache.key([one, two], "x")
        self.assertEqual(cache.key([two, one], "x"), first)
        self.assertNotEqual(cache.key([one, two], "y"), first)
        self.assertNotEqual(cache.key([one, two], "x", ""), first)
        self.assertNotEqual(cache.key([one], "x"), first)
        two.write_text("c")
        self.assertNotEqual(cache.key([one, two], "x"), first)

    def test_a_failed_build_leaves_nothing_and_the_next_one_succeeds(self) -> None:
        def fails(folder: Path) -> None:
            (folder / "half").write_text("half")
            raise Problem("no")

        with self.assertRaises(Problem):
            cache.ensure("thing", "thing-1", fails)
        self.assertEqual(list((self.root / "tools").iterdir()), [])
        made = cache.ensure("thing", "thing-1", lambda folder: (folder / "whole").write_text("whole"))
        self.assertEqual([entry.name for entry in made.iterdir()], ["whole"])

    def test_what_is_there_is_not_built_again(self) -> None:
        cache.ensure("thing", "thing-1", lambda folder: None)
        cache.ensure("thing", "thing-1", lambda folder: self.fail("built again"))

    def test_what_a_killed_build_left_is_removed_by_the_next(self) -> None:
        left = self.root / "tools" / ".building-thing-abc"
        left.mkdir(parents=True)
        cache.ensure("thing", "thing-1", lambda folder: None)
        self.assertFalse(left.exists())

    def test_of_many_processes_at_once_one_builds(self) -> None:
        program = (
            "from devcluster import cache\n"
            "import os\n"
            "def build(folder):\n"
            "    with open(os.environ['COUNT'], 'a') as count: count.write('built\\n')\n"
            "print(cache.ensure('thing', 'thing-1', build))\n"
        )
        count = self.root / "count"
        environment = {**os.environ, "COUNT": str(count), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", program]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        started = [subprocess.Popen(command, env=environment, text=True, **pipes) for _ in range(6)]
        answers = {process.communicate(timeout=60)[0].strip() for process in started}
        self.assertEqual(answers, {str(self.root / "tools" / "thing-1")})
        self.assertEqual(count.read_text(), "built\n")

    def test_a_lock_whose_file_is_forgotten_still_excludes_others(self) -> None:
        program = (
            "from devcluster import cache\n"
            "import os\n"
            "for _ in range(40):\n"
            "    with cache.lock('one', 'waiting', forget=lambda: True):\n"
            "        handle = os.open(os.environ['INSIDE'], os.O_CREAT | os.O_EXCL)\n"
            "        os.close(handle)\n"
            "        os.unlink(os.environ['INSIDE'])\n"
        )
        environment = {**os.environ, "INSIDE": str(self.root / "inside"), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", program]
        started = [subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) for _ in range(4)]
        self.assertEqual([process.wait(timeout=60) for process in started], [0, 0, 0, 0])
        self.assertFalse((self.root / "locks" / "one").exists())

    def test_a_failing_command_shows_the_end_of_its_log(self) -> None:
        with self.assertRaisesRegex(Problem, "making it failed .exit code 3.*(?s:.*)the reason"):
            cache.run_slow(["sh", "-c", "echo the reason; exit 3"], "making it", self.root / "log")

    def test_a_missing_program_is_named(self) -> None:
        with self.assertRaisesRegex(Problem, "no-such-program"):
            cache.run_slow(["no-such-program"], "making it", self.root / "log")
