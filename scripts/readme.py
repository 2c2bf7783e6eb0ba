#!/usr/bin/env python3
"""Writes the README's tables from results/, or checks that they agree.

    scripts/readme.py --write    rewrite the tables in README.md
    scripts/readme.py --check    exit 1, with the difference, when README.md and results/ disagree

A table stands between two markers. The first names a result file, and the table is made of
results/<machine>/<name>.json of every machine that has one:

    <!-- results:softmax_cpu -->
    <!-- /results -->
"""

import argparse
import difflib
import json
import math
import os
import pathlib
import re
import sys

BLOCK = re.compile(r"(<!-- results:([\w.-]+) -->\n)(.*?)(<!-- /results -->)", re.DOTALL)
OPENING = re.compile(r"<!-- results:")
NONE = "–"


class Disagreement(Exception):
    """Results or README that no table can be made from."""


def significant(value):
    """Three digits that mean something, whatever the magnitude."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def shape_text(shape):
    return shape if isinstance(shape, str) else "×".join(str(extent) for extent in shape)


def key(row):
    """Rows of one problem on one number of threads were measured against each other."""
    return row["problem"], row["threads"]


def load(path):
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Disagreement(f"{path}: not JSON: {error}") from error
    if result.get("schema") != 1:
        raise Disagreement(f"{path}: schema is {result.get('schema')!r}, known is 1")
    return result


def table(path):
    """One machine's table, as lines of Markdown."""
    result = load(path)
    environment = result["environment"]
    rows = result["rows"]
    ours = [row for row in rows if row["role"] == "ship" and row["chosen"]]
    peers = {(*key(row), row["variant"]): row for row in rows if row["role"] == "peer"}
    if not ours:
        raise Disagreement(f"{path}: no row with role ship that was chosen")
    if len({key(row) for row in ours}) != len(ours):
        raise Disagreement(f"{path}: two chosen rows for one problem and thread count")
    for row in ours:
        if not row["verified"]:
            raise Disagreement(f"{path}: {row['problem']}: measured, but not verified")

    on_gpu = environment.get("sm")
    name = environment.get("device" if on_gpu else "cpu") or path.parent.name
    about = [str(environment[field]) for field in ("isa", "driver", "cuda") if environment.get(field)]
    copy = result.get("limits", {}).get("copy_gbps")
    if copy:
        about.append(f"copy {copy:.1f} GB/s")
    if environment.get("commit"):
        changes = " with changes" if environment.get("dirty") else ""
        about.append(f"commit {environment['commit'][:12]}{changes}")
    if environment.get("date"):
        about.append(environment["date"][:10])
    lines = [f"**{name}** ({', '.join(about)})", ""] if about else [f"**{name}**", ""]

    # One line a problem, a group of columns for each number of threads.
    several_ops = len({row["op"] for row in ours}) > 1
    counts = sorted({row["threads"] for row in ours})
    columns = ["op"] if several_ops else []
    columns += ["shape", "dtype"]
    text_columns = len(columns)
    for count in counts:
        threads = f"{count} thread" + ("s" if count > 1 else "")
        columns += [f"{threads}: µs", "GB/s", "% of copy", "× onednn"]
    lines.append("| " + " | ".join(columns) + " |")
    lines.append("|" + "---|" * text_columns + "---:|" * (len(columns) - text_columns))

    ratios = []
    cells = {}
    for row in ours:
        percent = row.get("percent_of_copy")
        copy_row = peers.get((*key(row), "copy"))
        if percent is None and copy_row:
            percent = 100 * row["gbps"] / copy_row["gbps"]
        onednn = peers.get((*key(row), "onednn"))
        ratio = onednn["median_us"] / row["median_us"] if onednn else None
        if ratio is not None:
            ratios.append(ratio)
        problem = ([row["op"]] if several_ops else []) + [shape_text(row["shape"]), row["dtype"]]
        cells.setdefault(tuple(problem), {})[row["threads"]] = [
            significant(row["median_us"]),
            significant(row["gbps"]),
            NONE if percent is None else f"{percent:.0f}",
            NONE if ratio is None else f"{ratio:.2f}",
        ]
    for problem, by_threads in cells.items():
        line = list(problem)
        for count in counts:
            line += by_threads.get(count, [NONE] * 4)
        lines.append("| " + " | ".join(line) + " |")
    if ratios:
        mean = math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))
        lines += ["", f"Geometric mean over oneDNN: {mean:.2f}×, lowest {min(ratios):.2f}×."]
    return lines


def block(results, stem):
    """The text between the markers: one table a machine, in the order of the folders' names."""
    paths = sorted(results.glob(f"*/{stem}.json"), key=lambda path: path.parent.name)
    if not paths:
        raise Disagreement(f"README.md wants results:{stem}, but no results/*/{stem}.json exists")
    lines = []
    for path in paths:
        try:
            lines += [*table(path), ""]
        except (KeyError, TypeError, ZeroDivisionError, ValueError) as error:
            raise Disagreement(f"{path}: not of the schema: {error!r}") from error
    return "\n" + "\n".join(lines) + "\n"


def rewritten(readme, results):
    if not OPENING.search(readme):
        raise Disagreement("README.md has no <!-- results:NAME --> block")
    text, count = BLOCK.subn(lambda found: found[1] + block(results, found[2]) + found[4], readme)
    if count != len(OPENING.findall(readme)):
        raise Disagreement("README.md: a <!-- results:NAME --> block is not closed by <!-- /results -->")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="rewrite the tables in README.md")
    action.add_argument("--check", action="store_true", help="exit 1 when the two disagree")
    parser.add_argument("--root", type=pathlib.Path, help="the tree; default: this script's",
                        default=pathlib.Path(__file__).resolve().parent.parent)
    arguments = parser.parse_args()

    path = arguments.root / "README.md"
    try:
        before = path.read_bytes().decode("utf-8")
        after = rewritten(before, arguments.root / "results")
    except (OSError, Disagreement) as error:
        print(f"readme: {error}", file=sys.stderr)
        return 1

    if before == after:
        return 0
    if arguments.check:
        sys.stdout.writelines(difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True),
            "README.md", "README.md from results/"))
        print("readme: README.md disagrees with results/; `make readme` writes it", file=sys.stderr)
        return 1
    new = path.with_suffix(".md.new")
    new.write_bytes(after.encode("utf-8"))
    os.replace(new, path)
    print("readme: README.md rewritten")
    return 0


if __name__ == "__main__":
    sys.exit(main())
