#!/usr/bin/env python3
"""ab.sh: the order in which it runs two programs, where it keeps what they write,
what it refuses."""

import os
import pathlib
import subprocess
import tempfile
import unittest

AB = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "ab.sh"
# Stands for onepass: notes how it was called, writes what --json names, ends as $FAIL says.
PROGRAM = """#!/usr/bin/env bash
echo "$(basename "$0") $*" >> calls
[[ "$1" == compare ]] && exit 1
[[ "${FAIL-}" != "$(basename "$0")" ]] || { echo noise >&2; echo "onepass: no GPU" >&2; exit 3; }
while (($#)); do [[ "$1" == --json ]] && echo {} > "$2"; shift; done
"""


class AbTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("old", "new", "newer"):
            (self.folder / name).write_text(PROGRAM, encoding="utf-8")
            (self.folder / name).chmod(0o755)
        (self.folder / "w.txt").write_text("softmax 8x8 f32\n", encoding="utf-8")

    def run_ab(self, *flags, **variables):
        given = {
            "BEFORE": "./old",
            "AFTER": "./new",
            "WORKLOAD": "w.txt",
            "OUT": "out",
            **variables,
        }
        environment = {**os.environ, **given}
        return subprocess.run(
            [AB, *flags],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def refuses(self, *words, **variables):
        done = self.run_ab(**variables)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("ab: "), done.stderr.count("\n"), done.stderr)
        for word in words:
            self.assertIn(word, done.stderr.splitlines()[-1])

    def test_programs_take_turns_and_go_first_in_turns(self):
        done = self.run_ab("--device", "cuda", REPEATS="3", COMPARE="./newer")
        self.assertEqual(done.returncode, 1, done.stderr)  # compare's
        calls = (self.folder / "calls").read_text(encoding="utf-8").splitlines()
        self.assertEqual(
            [call.split()[0] for call in calls], ["old", "new", "new", "old", "old", "new", "newer"]
        )
        self.assertEqual(
            calls[0],
            "old bench --workload w.txt --variants auto --device cuda --json out/before/01.json",
        )
        self.assertEqual(calls[-1], "newer compare out/before out/after")
        for side in ("before", "after"):
            self.assertEqual(
                sorted(path.name for path in (self.folder / "out" / side).iterdir()),
                ["01.json", "02.json", "03.json"],
            )

    def test_five_repeats_compared_by_after_where_nothing_is_said(self):
        self.run_ab()
        calls = (self.folder / "calls").read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(calls), 11)
        self.assertTrue(calls[-1].startswith("new compare"))

    def test_a_program_that_fails_ends_it(self):
        self.refuses("after", "repeat 1", "ended with 3", "onepass: no GPU", FAIL="new")
        self.assertNotIn("compare", (self.folder / "calls").read_text(encoding="utf-8"))

    def test_refuses(self):
        self.refuses("BEFORE", "missing", BEFORE="")
        self.refuses("WORKLOAD", "missing", WORKLOAD="")
        self.refuses("AFTER", "./nowhere", AFTER="./nowhere")
        self.refuses("BEFORE", "w.txt", BEFORE="w.txt")
        self.refuses("WORKLOAD", "no.txt", WORKLOAD="no.txt")
        self.refuses("REPEATS", "many", REPEATS="many")
        self.refuses("REPEATS", "0", REPEATS="0")
        self.refuses("OUT", "w.txt/out", OUT="w.txt/out")
        self.assertFalse((self.folder / "calls").exists())
        self.run_ab(REPEATS="1")
        self.refuses("OUT", "out/before/01.json")


if __name__ == "__main__":
    unittest.main()
