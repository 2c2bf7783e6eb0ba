#!/usr/bin/env python3
"""Looks at the layout that clang-format and ruff leave to authors, and names what must not be.

    scripts/layout.py    exit 1 when something was found

- A line over 100 columns: a comment, a string, or anything in a language that neither knows.
- A file over 400 lines.
- A kernel whose signature does not begin with its return type: `__global__ void` comes first.

A table is as wide as it has to be, because it cannot be broken. It is

- a line of a comment with two or more `|`;
- a record of CSV or JSON in a test's data, which has eight or more `,"`.
"""

import argparse
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent

COLUMNS = 100
LINES = 400
SOURCES = {".hpp", ".cpp", ".cuh", ".cu", ".def", ".py", ".cmake", ".sh"}
# Folders whose files are held to LINES.
SHORT = ("src", "include", "cli", "python", "tests")

BOUNDS_FIRST = re.compile(r"__global__\s+__launch_bounds__")
COMMENT = re.compile(r"^\s*(//|#|\*)|\s(//|#) ")


def is_table(line: str) -> bool:
    return (COMMENT.search(line) is not None and line.count("|") >= 2) or line.count(',"') >= 8


def sources(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """What git tracks or would; without git, every file outside build/."""
    listed = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [root / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for path in root.rglob("*") if path.relative_to(root).parts[0] != "build"]
    for path in sorted(paths):
        if path.is_file() and (path.suffix in SOURCES or path.name == "CMakeLists.txt"):
            yield path


def problems(root: pathlib.Path) -> Iterator[str]:
    for path in sources(root):
        name = path.relative_to(root).as_posix()
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if path.suffix in {".cu", ".cuh"} and BOUNDS_FIRST.search(line):
                yield f"{name}:{number}: put void before __launch_bounds__"
            if len(line) > COLUMNS and not is_table(line):
                yield f"{name}:{number}: {len(line)} columns, {COLUMNS} at most"
        held = name.startswith(tuple(f"{folder}/" for folder in SHORT))
        if held and len(lines) > LINES:
            yield f"{name}: {len(lines)} lines, {LINES} at most: split it along a seam"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.parse_args()
    found = list(problems(ROOT))
    for line in found:
        print(line)
    if not found:
        count = sum(1 for _ in sources(ROOT))
        print(
            f"layout: {count} files have no line over {COLUMNS} columns, "
            f"and those of {', '.join(SHORT)} no more than {LINES} lines"
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
