#!/usr/bin/env python3
"""Writes the tables of docs/walk from results/h200/, or checks that they agree.

    scripts/walk.py --write    rewrite the tables in the pages of docs/walk
    scripts/walk.py --check    exit 1, with the difference, when a page and results/ disagree

The tables, by the names in the pages' markers:

    steps_f32, steps_f16    softmax_walk.json at 4096×4096: each variant against the one before
    shapes_f16              softmax_walk.json, every other f16 shape: one column a variant
    cols_f32                softmax_walk.json, f32 of 4096 rows: one column a variant
    counters                softmax_profile.json: what Nsight Compute counted
    topk_steps              topk_walk.json at 64×32000 f32 k=50: each variant against the one before
    topk_problems           topk_walk.json, every problem: one column a variant
    attention_steps         attention_walk.json at 4×16×1024×64 f16: each variant
                            against the one before
    attention_problems      attention_walk.json, every problem: one column a variant
    attention_backward_steps, attention_backward_problems
                            attention_backward_walk.json: the same of the gradients
    attention_shipped       attention.json: what is chosen, at many problems

A table whose results do not exist yet stays as it is, and the script says so.
"""

import sys

import tables
from tables import NONE, Disagreement, significant

MACHINE = "h200"
SQUARE = [4096, 4096]
CUDNN = "cudnn_accurate"
TOPK = "topk 64x32000 f32 k=50 device=cuda"
ATTENTION = "attention 4x16x1024x64 f16 device=cuda"
ATTENTION_BACKWARD = "attention_backward 4x16x1024x64 f16 device=cuda"
CUDNN_SDPA = "cudnn_sdpa"
PAGES = ["docs/walk/softmax.md", "docs/walk/topk.md", "docs/walk/attention.md"]


def verified(rows):
    for row in rows:
        if row["role"] != "peer" and not row["verified"]:
            raise Disagreement(f"{row['variant']} on {row['problem']}: measured, but not verified")
    return rows


def of_dtype(rows, dtype):
    # The walk is the variants that teach; those that ship are measured in the same run.
    return verified(
        [
            row
            for row in rows
            if row["op"] == "softmax" and row["dtype"] == dtype and row["role"] != "ship"
        ]
    )


def of_op(rows, op):
    # Here the walk ends with what ships.
    return verified([row for row in rows if row["op"] == op])


def by_role(rows):
    """In reading order, those that ship after those that teach, then the peers."""
    return sorted(rows, key=lambda row: ["teach", "ship", "peer"].index(row["role"]))


def number(value, digits=0):
    return NONE if value is None else f"{value:,.{digits}f}"


def steps(rows, dtype):
    """4096×4096: the variants in reading order, then the peers."""
    rows = [row for row in of_dtype(rows, dtype) if row["shape"] == SQUARE]
    if not rows:
        raise Disagreement(f"no {dtype} rows of 4096×4096")
    cudnn = next((row["median_us"] for row in rows if row["variant"] == CUDNN), None)
    body = []
    before = None
    for row in sorted(rows, key=lambda row: row["role"] == "peer"):
        time = row["median_us"]
        is_step = row["role"] != "peer"
        is_copy = row["variant"] == "copy"
        body.append(
            [
                row["variant"],
                f"{time / 1000:.3f}",
                significant(row["gbps"]),
                number(row["percent_of_copy"]),
                NONE if cudnn is None or is_copy else f"{100 * cudnn / time:.0f}",
                f"{before / time:.2f}×" if is_step and before else "",
            ]
        )
        if is_step:
            before = time
    columns = ["variant", "ms", "GB/s", "% of copy", "% of cuDNN", "gain over the step before"]
    return tables.markdown(columns, 1, body)


def shape_of(row):
    return tuple(row["shape"])


def grid(rows, first, label, key=shape_of):
    """One line a shape, or whatever the key is, one column a variant; the best of a
    line is bold."""
    if not rows:
        raise Disagreement(f"no rows for the table of {first}")
    ordered = sorted(rows, key=lambda row: row["role"] == "peer")  # stable: the peers last
    variants = list(dict.fromkeys(row["variant"] for row in ordered))
    lines = {}
    for row in rows:
        line = lines.setdefault(key(row), {})
        if row["variant"] in line:
            raise Disagreement(f"{row['variant']} on {row['problem']}: measured twice")
        line[row["variant"]] = row["median_us"]
    body = []
    for what, times in lines.items():
        best = min((time for variant, time in times.items() if variant != "copy"), default=None)
        cells = [label(what)]
        for variant in variants:
            time = times.get(variant)
            text = NONE if time is None else significant(time)
            cells.append(
                f"**{text}**" if time is not None and time == best and variant != "copy" else text
            )
        body.append(cells)
    return ["Microseconds.", "", *tables.markdown([first, *variants], 1, body)]


def shapes_f16(rows):
    rows = [row for row in of_dtype(rows, "f16") if row["shape"] != SQUARE]
    return grid(rows, "shape", tables.shape_text)


def cols_f32(rows):
    rows = [
        row for row in of_dtype(rows, "f32") if row["shape"][0] == 4096 and len(row["shape"]) == 2
    ]
    rows.sort(key=lambda row: row["shape"][1])
    return grid(rows, "cols", lambda shape: str(shape[1]))


def topk_steps(rows):
    rows = [row for row in of_op(rows, "topk") if row["problem"] == TOPK]
    if not rows:
        raise Disagreement(f"no rows of {TOPK}")
    body = []
    before = None
    for row in by_role(rows):
        time = row["median_us"]
        is_step = row["role"] == "teach"
        body.append(
            [
                row["variant"],
                significant(time),
                significant(row["gbps"]),
                number(row["percent_of_copy"]),
                f"{before / time:.2f}×" if is_step and before else "",
            ]
        )
        if is_step:
            before = time
    columns = ["variant", "µs", "GB/s", "% of copy", "gain over the step before"]
    return tables.markdown(columns, 1, body)


def problems(rows, op):
    def label(problem):
        return f"`{problem.removesuffix(' device=cuda')}`"

    return grid(of_op(rows, op), "problem", label, lambda row: row["problem"])


def attention_steps(rows, problem=ATTENTION):
    rows = [row for row in of_op(rows, problem.split()[0]) if row["problem"] == problem]
    if not rows:
        raise Disagreement(f"no rows of {problem}")
    has_peer = problem == ATTENTION  # cuDNN's gradients are not measured here
    cudnn = next((row["median_us"] for row in rows if row["variant"] == CUDNN_SDPA), None)
    body = []
    before = None
    for row in by_role(rows):
        time = row["median_us"]
        is_step = row["role"] == "teach"
        is_copy = row["variant"] == "copy"
        of_cudnn = NONE if cudnn is None or is_copy else f"{100 * cudnn / time:.0f}"
        body.append(
            [
                row["variant"],
                significant(time),
                NONE if is_copy else significant(row["tflops"]),
                *([of_cudnn] if has_peer else []),
                f"{before / time:.2f}×" if is_step and before else "",
            ]
        )
        if is_step:
            before = time
    peer = ["% of cuDNN"] if has_peer else []
    columns = ["variant", "µs", "TFLOP/s", *peer, "gain over the step before"]
    return tables.markdown(columns, 1, body)


def attention_shipped(rows):
    body = []
    rows = of_op(rows, "attention")
    cudnn = {row["problem"]: row["median_us"] for row in rows if row["variant"] == "cudnn_sdpa"}
    for row in rows:
        if not row["chosen"]:
            continue
        peer = cudnn.get(row["problem"])
        _, shape, dtype, *options = [
            word for word in row["problem"].split() if "device=" not in word
        ]
        body.append(
            [
                shape,
                " ".join([dtype, *options]),
                row["variant"],
                significant(row["median_us"]),
                significant(row["tflops"]),
                significant(row["gbps"]),
                significant(peer) if peer else "–",
                f"{peer / row['median_us']:.2f}" if peer else "–",
            ]
        )
    columns = [
        "batch × heads × queries × dim",
        "and",
        "variant",
        "µs",
        "TFLOP/s",
        "GB/s",
        "cuDNN µs",
        "× cuDNN",
    ]
    return tables.markdown(columns, 3, body)


def counters(rows):
    """One table a problem."""
    columns = [
        "variant",
        "moved from the step before",
        "µs",
        "DRAM %",
        "L2 %",
        "L1/TEX %",
        "SM %",
        "occupancy %",
        "registers",
        "read MB",
        "written MB",
    ]
    measured = list(dict.fromkeys(row["problem"] for row in rows))
    if not measured:
        raise Disagreement("no rows")
    lines = []
    for problem in measured:
        body = []
        for row in rows:
            if row["problem"] != problem or row["role"] == "ship":
                continue
            cells = [row["variant"], row["moved"].replace("->", "→"), number(row["duration_us"], 1)]
            cells += [
                number(row[f"{part}_percent"]) for part in ("dram", "l2", "l1", "sm", "occupancy")
            ]
            cells.append(number(row["registers"]))
            for way in ("read", "write"):
                size = row[f"dram_{way}_bytes"]
                cells.append(NONE if size is None else f"{size / 1e6:,.1f}")
            body.append(cells)
        lines += ["", f"`{problem}`", "", *tables.markdown(columns, 2, body)]
    return lines[1:]


TABLES = {
    "steps_f32": ("softmax_walk", lambda rows: steps(rows, "f32")),
    "steps_f16": ("softmax_walk", lambda rows: steps(rows, "f16")),
    "shapes_f16": ("softmax_walk", shapes_f16),
    "cols_f32": ("softmax_walk", cols_f32),
    "counters": ("softmax_profile", counters),
    "topk_steps": ("topk_walk", topk_steps),
    "topk_problems": ("topk_walk", lambda rows: problems(rows, "topk")),
    "attention_steps": ("attention_walk", attention_steps),
    "attention_shipped": ("attention", attention_shipped),
    "attention_problems": ("attention_walk", lambda rows: problems(rows, "attention")),
    "attention_backward_steps": (
        "attention_backward_walk",
        lambda rows: attention_steps(rows, ATTENTION_BACKWARD),
    ),
    "attention_backward_problems": (
        "attention_backward_walk",
        lambda rows: problems(rows, "attention_backward"),
    ),
}


def block(results, name):
    if name not in TABLES:
        raise Disagreement(f"results:{name} is none of {', '.join(TABLES)}")
    stem, make = TABLES[name]
    path = results / MACHINE / f"{stem}.json"
    if not path.exists():
        print(f"walk: results/{MACHINE}/{stem}.json does not exist yet; {name} stays as it is")
        return None

    def lines():
        result = tables.load(path)
        return [tables.machine_line(path, result), "", *make(result["rows"])]

    try:
        return "\n" + "\n".join(tables.guarded(path, lines)) + "\n\n"
    except Disagreement as error:
        raise Disagreement(f"{name}: {error}") from error


if __name__ == "__main__":
    sys.exit(tables.run("walk", PAGES, __doc__.split("\n", 1)[0], block, optional=True))
