#!/usr/bin/env python3
"""Writes the tables of README.md and docs/results.md and the README's picture from results/.

    scripts/readme.py --write    rewrite the tables and docs/pictures/softmax.svg
    scripts/readme.py --check    exit 1, with the difference, when one disagrees with results/

A table stands between two markers. The first names a result file, and the table is made of
results/<machine>/<name>.json of every machine that has one:

    <!-- results:softmax_cpu -->
    <!-- /results -->

Two names have a form of their own: `summary`, one line per op with its best and its worst, and
`python_peers`, one column per peer.
"""

import math
import sys

import picture
import tables
from tables import NONE, Disagreement, significant

PAGES = ["README.md", "docs/results.md"]
PICTURE = "docs/pictures/softmax.svg"
PYTHON_PEERS = "h200/python_peers.json"
LIBRARIES = {"onednn": "oneDNN", "cudnn": "cuDNN"}  # peers, by how their variants' names begin

# The README's table: what, the result file, its ops (all when empty), the peer (empty: a copy).
SUMMARY = [
    ("softmax", "h200/row_ops", ["softmax"], "cudnn"),
    (
        "gradients and losses",
        "h200/row_ops",
        ["softmax_backward", "cross_entropy", "cross_entropy_backward", "logsumexp"],
        "",
    ),
    ("topk", "h200/topk", ["topk"], ""),
    ("sample", "h200/topk", ["sample"], ""),
    ("gate", "h200/topk", ["gate"], ""),
    ("attention", "h200/attention", [], "cudnn"),
    ("softmax", "neoverse-v1/softmax_cpu", [], "onednn"),
    ("softmax", "sapphire-rapids/softmax_cpu", [], "onednn"),
]


def library(rows):
    """The library that a file's rows stand beside; none is the empty string."""
    for name in LIBRARIES:
        if any(row["role"] == "peer" and row["variant"].startswith(name) for row in rows):
            return name
    return ""


def options(row):
    """The options that a row's problem names."""
    return [
        word
        for word in row["problem"].split()[3:]
        if "device=" not in word and "threads=" not in word
    ]


def key(row):
    """Rows of one problem on one number of threads were measured against each other."""
    return row["problem"], row["threads"]


def chosen(path, rows):
    """What the dispatcher chose, one row per problem and number of threads."""
    ours = [row for row in rows if row["role"] == "ship" and row["chosen"]]
    if not ours:
        raise Disagreement(f"{path}: no row with role ship that was chosen")
    if len({key(row) for row in ours}) != len(ours):
        raise Disagreement(f"{path}: two chosen rows for one problem and thread count")
    for row in ours:
        if not row["verified"]:
            raise Disagreement(f"{path}: {row['problem']}: measured, but not verified")
    return ours


def ratios(rows, ours, beside):
    """By key: the time of the peer's fastest variant over ours, where it ran the problem."""
    fastest = {}
    for row in rows:
        if beside and row["role"] == "peer" and row["variant"].startswith(beside):
            fastest[key(row)] = min(row["median_us"], fastest.get(key(row), math.inf))
    return {key(row): fastest[key(row)] / row["median_us"] for row in ours if key(row) in fastest}


def percents(rows, ours):
    """By key: our rate in percent of a copy's."""
    copies = {
        key(row): row["gbps"] for row in rows if row["role"] == "peer" and row["variant"] == "copy"
    }
    return {
        key(row): row.get("percent_of_copy") or 100 * row["gbps"] / copies[key(row)]
        for row in ours
        if row.get("percent_of_copy") or key(row) in copies
    }


def geometric_mean(values):
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def table(path):
    """One machine's table in Markdown: a line per problem, a group of columns per thread count."""
    result = tables.load(path)
    rows = result["rows"]
    ours = chosen(path, rows)
    beside = library(rows)
    ratio_of, percent_of = ratios(rows, ours, beside), percents(rows, ours)
    several_ops = len({(row["op"], *options(row)) for row in ours}) > 1
    multiplies = any(row.get("tflops") for row in ours)  # then a copy is no measure
    flops, scale = (
        ("TFLOP/s", 1) if max(row.get("tflops") or 0 for row in ours) >= 1 else ("GFLOP/s", 1000)
    )

    counts = sorted({row["threads"] for row in ours})
    columns = ["op"] if several_ops else []
    columns += ["shape", "dtype"]
    text_columns = len(columns)
    cells = {}
    for row in ours:
        numbers = {"µs": significant(row["median_us"])}
        if multiplies:
            numbers[flops] = significant(scale * row["tflops"])
        numbers["GB/s"] = significant(row["gbps"])
        if not multiplies:
            numbers["% of copy"] = f"{percent_of[key(row)]:.0f}" if key(row) in percent_of else NONE
        if beside:
            numbers[f"× {LIBRARIES[beside]}"] = (
                f"{ratio_of[key(row)]:.2f}" if key(row) in ratio_of else NONE
            )
        problem = [" ".join([row["op"], *options(row)])] if several_ops else []
        problem += [tables.shape_text(row["shape"]), row["dtype"]]
        cells.setdefault(tuple(problem), {})[row["threads"]] = numbers
    names = list(numbers)  # the same for every row
    for count in counts:
        threads = f"{count} thread" + ("s" if count > 1 else "") + ": "
        columns += [
            threads + names[0] if count else names[0],
            *names[1:],
        ]  # a GPU has no threads to count
    body = [
        [*problem, *(by_count.get(count, {}).get(name, NONE) for count in counts for name in names)]
        for problem, by_count in cells.items()
    ]
    lines = [tables.machine_line(path, result), "", *tables.markdown(columns, text_columns, body)]
    if ratio_of:
        lines += [
            "",
            f"Geometric mean over {LIBRARIES[beside]}: {geometric_mean(ratio_of.values()):.2f}×, "
            f"lowest {min(ratio_of.values()):.2f}×.",
        ]
    return lines


def best_and_worst(what, where, beside, values, unit):
    """A line of the summary. values: (number, problem) pairs."""

    def cell(value):
        return f"{value[0]:.{2 if unit == '×' and value[0] < 10 else 0}f}{unit} at {value[1]}"

    mean = geometric_mean([value for value, _ in values])
    return [
        what,
        where,
        beside,
        str(len(values)),
        f"{mean:.{2 if unit == '×' else 0}f}{unit}",
        cell(max(values)),
        cell(min(values)),
    ]


def summary(results):
    """The README's table."""
    body = []
    for what, stem, ops, beside in SUMMARY:
        path = results / f"{stem}.json"

        def line(path=path, what=what, ops=ops, beside=beside):
            rows = tables.load(path)["rows"]
            most = max(row["threads"] for row in rows)
            ours = [
                row
                for row in chosen(path, rows)
                if row["op"] in (ops or [row["op"]]) and row["threads"] == most
            ]
            numbers = ratios(rows, ours, beside) if beside else percents(rows, ours)
            where = path.parent.name.replace("-", " ").title() + (
                f", {most} threads" if most else ""
            )
            values = [
                (
                    numbers[key(row)],
                    " ".join([tables.shape_text(row["shape"]), row["dtype"], *options(row)]),
                )
                for row in ours
                if key(row) in numbers
            ]
            return best_and_worst(
                what, where, LIBRARIES.get(beside, "a copy"), values, "×" if beside else " %"
            )

        body.append(tables.guarded(path, line))
    path = results / PYTHON_PEERS
    body.insert(1, tables.guarded(path, lambda: python_line(path)))
    columns = ["op", "on", "beside", "problems", "geometric mean", "best", "worst"]
    return ["", *tables.markdown(columns, 3, body), ""]


def python_times(path):
    """By (dtype, shape): the time of every peer that was there."""
    times = {}
    for row in tables.load(path, schema=None)["rows"]:
        if "us" in row:
            problem = (row["dtype"], f"{row['rows']}×{row['cols']}")
            times.setdefault(problem, {})[row["peer"]] = row["us"]
    return times


def python_line(path):
    peers = [peer for peer in picture.LINES if peer != "onepass"]
    values = [
        (min(of[peer] for peer in peers) / of["onepass"], f"{shape} {dtype}")
        for (dtype, shape), of in python_times(path).items()
    ]
    return best_and_worst(
        "softmax, from Python",
        "H200",
        "the fastest of " + ", ".join(picture.LINES[peer][0].split(" (")[0] for peer in peers),
        values,
        "×",
    )


def python_peers(path):
    """What the picture draws, as a table of microseconds."""
    result = tables.load(path, schema=None)
    times = python_times(path)
    peers = list(dict.fromkeys(peer for of in times.values() for peer in of))
    body = [
        [shape, dtype, *(significant(of[peer]) if peer in of else NONE for peer in peers)]
        for (dtype, shape), of in times.items()
    ]
    where = result["environment"]
    versions = f"torch {where['torch']}, Triton {where['triton']}, commit {where['commit'][:12]}"
    about = f"**{where['gpu']}** ({versions})"
    return [about, "", "Microseconds.", "", *tables.markdown(["shape", "dtype", *peers], 2, body)]


def block(results, stem):
    """The text between the markers: one table per machine, in the order of the folders' names."""
    if stem == "summary":
        return "\n".join(summary(results)) + "\n"
    paths = sorted(results.glob(f"*/{stem}.json"), key=lambda path: path.parent.name)
    if not paths:
        raise Disagreement(f"results:{stem}: there is no results/*/{stem}.json")
    make = python_peers if stem == "python_peers" else table
    lines = []
    for path in paths:
        lines += [*tables.guarded(path, lambda path=path: make(path)), ""]
    return "\n" + "\n".join(lines) + "\n"


def svg(results):
    path = results / PYTHON_PEERS
    return tables.guarded(path, lambda: picture.svg(tables.load(path, schema=None)))


if __name__ == "__main__":
    sys.exit(tables.run("readme", PAGES, __doc__.split("\n", 1)[0], block, files={PICTURE: svg}))
