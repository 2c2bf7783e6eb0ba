#!/usr/bin/env python3
"""Runs every runner of tests, whatever became of the one before, and adds up what they report.

    scripts/run_tests.py [--preset release] [--parallel N]

The last line is `N passed, N failed, N skipped`, over ctest and pytest; exit 1 when
anything failed."""

import argparse
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON_REPORT = ROOT / "build/python/junit.xml"


def counted(report, failed):
    """[passed, failed, skipped] of a JUnit file; `failed`: whether its runner said so."""
    counts = [0, 0, 0]
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        cases = []
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            counts[1] += 1
        elif case.find("skipped") is not None:
            counts[2] += 1
        else:
            counts[0] += 1
    # A runner that fails without a failed test could not run something; ctest, too, lists a
    # test whose program is missing as skipped. One that is content without any test has
    # skipped them all.
    if failed and counts[1] == 0:
        counts[1] = 1
    if not failed and not cases:
        counts[2] = 1
    return counts


def run(command, report):
    report.unlink(missing_ok=True)  # of an earlier run
    print("+", *command, flush=True)
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    return counted(report, status != 0)


def main():
    parser = argparse.ArgumentParser(prog="run_tests.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--preset", default="release", help="the tree whose tests run")
    parser.add_argument("--parallel", default="2", help="tests of ctest at once")
    arguments = parser.parse_args()
    ctest_report = ROOT / "build" / arguments.preset / "junit.xml"
    totals = [
        run(
            ["scripts/python.sh", "test", "--if-possible", f"--junitxml={PYTHON_REPORT}"],
            PYTHON_REPORT,
        ),
        run(
            [
                "ctest",
                "--preset",
                arguments.preset,
                "--parallel",
                arguments.parallel,
                "--no-label-summary",
                "--output-junit",
                str(ctest_report),
            ],
            ctest_report,
        ),
    ]
    passed, failed, skipped = map(sum, zip(*totals))
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
