#!/usr/bin/env python3
"""Writes the README's tables from results/, or checks that they agree.

    scripts/readme.py --write    rewrite the tables in README.md
    scripts/readme.py --check    exit 1, with the difference, when README.md and results/ disagree

A table stands between two markers. The first names a result file, and the table is made of
results/<machine>/<name>.json of every machine that has one:

    <!-- results:softmax_cpu -->
    <!-- /results -->
"""

import math
import sys

import tables
from tables import NONE, Disagreement, significant


LIBRARIES = {"onednn": "oneDNN", "cudnn": "cuDNN"}  # peers, by how their variants' names begin


def library(rows):
    """The library that a file's rows stand beside."""
    for name in LIBRARIES:
        if any(row["role"] == "peer" and row["variant"].startswith(name) for row in rows):
            return name
    return "onednn"


def op_text(row):
    """The op, and the options that its problem names."""
    options = [word for word in row["problem"].split()[3:] if "device=" not in word and "threads=" not in word]
    return " ".join([row["op"], *options])


def key(row):
    """Rows of one problem on one number of threads were measured against each other."""
    return row["problem"], row["threads"]


def table(path):
    """One machine's table, as lines of Markdown."""
    result = tables.load(path)
    rows = result["rows"]
    ours = [row for row in rows if row["role"] == "ship" and row["chosen"]]
    beside = library(rows)
    copies = {key(row): row for row in rows if row["role"] == "peer" and row["variant"] == "copy"}
    peers = {}  # the library's quickest
    for row in rows:
        if row["role"] == "peer" and row["variant"].startswith(beside):
            best = peers.get(key(row))
            peers[key(row)] = row if best is None or row["median_us"] < best["median_us"] else best
    if not ours:
        raise Disagreement(f"{path}: no row with role ship that was chosen")
    if len({key(row) for row in ours}) != len(ours):
        raise Disagreement(f"{path}: two chosen rows for one problem and thread count")
    for row in ours:
        if not row["verified"]:
            raise Disagreement(f"{path}: {row['problem']}: measured, but not verified")

    # One line a problem, a group of columns for each number of threads.
    several_ops = len({op_text(row) for row in ours}) > 1
    counts = sorted({row["threads"] for row in ours})
    columns = ["op"] if several_ops else []
    columns += ["shape", "dtype"]
    text_columns = len(columns)
    for count in counts:
        threads = f"{count} thread" + ("s" if count > 1 else "") + ": "  # a GPU has none
        columns += [f"{threads if count else ''}µs", "GB/s", "% of copy", f"× {beside}"]

    ratios = []
    cells = {}
    for row in ours:
        percent = row.get("percent_of_copy")
        copy_row = copies.get(key(row))
        if percent is None and copy_row:
            percent = 100 * row["gbps"] / copy_row["gbps"]
        peer = peers.get(key(row))
        ratio = peer["median_us"] / row["median_us"] if peer else None
        if ratio is not None:
            ratios.append(ratio)
        problem = [op_text(row)] if several_ops else []
        problem += [tables.shape_text(row["shape"]), row["dtype"]]
        cells.setdefault(tuple(problem), {})[row["threads"]] = [
            significant(row["median_us"]),
            significant(row["gbps"]),
            NONE if percent is None else f"{percent:.0f}",
            NONE if ratio is None else f"{ratio:.2f}",
        ]
    body = []
    for problem, by_threads in cells.items():
        line = list(problem)
        for count in counts:
            line += by_threads.get(count, [NONE] * 4)
        body.append(line)
    lines = [tables.machine_line(path, result), "", *tables.markdown(columns, text_columns, body)]
    if ratios:
        mean = math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))
        lines += ["", f"Geometric mean over {LIBRARIES[beside]}: {mean:.2f}×, lowest {min(ratios):.2f}×."]
    return lines


def block(results, stem):
    """The text between the markers: one table a machine, in the order of the folders' names."""
    paths = sorted(results.glob(f"*/{stem}.json"), key=lambda path: path.parent.name)
    if not paths:
        raise Disagreement(f"README.md wants results:{stem}, but no results/*/{stem}.json exists")
    lines = []
    for path in paths:
        lines += [*tables.guarded(path, lambda path=path: table(path)), ""]
    return "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(tables.run("readme", ["README.md"], __doc__.split("\n", 1)[0], block))
