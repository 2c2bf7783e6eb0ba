#!/usr/bin/env python3
"""The sum over the runners of tests: what counts as what, and what the last line says."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"

PASSED = '<testcase name="a"/>'
FAILED = '<testcase name="b"><failure message="no"/></testcase>'
BROKEN = '<testcase name="c"><error message="no fixture"/></testcase>'
SKIPPED = '<testcase name="d"><skipped message="no GPU"/></testcase>'


def script(report, cases, status):
    """Stands for a runner: writes its report, which is the last argument or part of it."""
    lines = ["#!/bin/sh", "for last; do :; done"]
    if cases is not None:
        lines += [f"cat > \"{report}\" <<'XML'", f"<testsuite>{''.join(cases)}</testsuite>", "XML"]
    return "\n".join([*lines, f"exit {status}", ""])


class RunTestsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for made in ("bin", "scripts", "build/python", "build/release"):
            (self.root / made).mkdir(parents=True)
        shutil.copy(SCRIPTS / "run_tests.py", self.root / "scripts")

    def put(self, path, text):
        (self.root / path).write_text(text, encoding="utf-8")
        (self.root / path).chmod(0o755)

    def last_line(self, python, ctest, code):
        """python and ctest: (the cases of its report, or None for no report; its exit status)."""
        self.put("scripts/python.sh", script("${last#--junitxml=}", *python))
        self.put("bin/ctest", script("$last", *ctest))
        done = subprocess.run(
            [sys.executable, self.root / "scripts/run_tests.py"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"},
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout.splitlines()[-1]

    def test_both_are_added_up(self):
        self.assertEqual(
            self.last_line(([PASSED, SKIPPED], 0), ([PASSED, PASSED], 0), 0),
            "3 passed, 0 failed, 1 skipped",
        )
        self.assertEqual(
            self.last_line(([PASSED, FAILED, BROKEN], 1), ([PASSED], 0), 1),
            "2 passed, 2 failed, 0 skipped",
        )

    def test_a_failure_of_one_does_not_stop_the_other(self):
        self.assertEqual(
            self.last_line((None, 1), ([PASSED], 0), 1), "1 passed, 1 failed, 0 skipped"
        )

    def test_a_runner_that_fails_without_a_failed_test(self):
        self.assertEqual(
            self.last_line(([PASSED], 0), ([PASSED, SKIPPED], 8), 1),
            "2 passed, 1 failed, 1 skipped",
        )

    def test_no_python_is_skipped(self):
        self.assertEqual(
            self.last_line((None, 0), ([PASSED], 0), 0), "1 passed, 0 failed, 1 skipped"
        )

    def test_the_report_of_an_earlier_run_does_not_count(self):
        self.put("build/python/junit.xml", f"<testsuite>{PASSED}</testsuite>")
        self.assertEqual(self.last_line((None, 1), (None, 1), 1), "0 passed, 2 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
