"""The README's picture: softmax beside its peers on a GPU, as an SVG of python_peers.json.

One panel per dtype: percent of a copy over columns. It brings its own background and follows the
reader's colour scheme, so it reads on light and on dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tables import Disagreement

Row = dict[str, Any]

WIDTH, HEIGHT = 860, 410
TOP, BOTTOM = 88, 318  # of the panels
PANELS = [(58, 418), (482, 842)]  # left and right of each
DTYPES = ["float32", "float16"]
PERCENT_TICKS = [0, 25, 50, 75, 100]
PERCENT_MAX = 108

# By peer: its name in the legend, its colour on a light and on a dark page, and its dashes.
LINES = {
    "torch": ("PyTorch", "#b3530a", "#f0883e", "2 4"),
    "torch.compile": ("torch.compile", "#8250df", "#bc8cff", "8 4"),
    "triton": ("Triton (a fused softmax of ours)", "#1a7f37", "#56d364", "8 3 2 3"),
    "onepass": ("onepass", "#0969da", "#58a6ff", "none"),
}


def style() -> str:
    light = [
        "rect { fill: #ffffff }",
        "text { font: 12px system-ui, sans-serif; fill: #1f2328 }",
        ".soft { fill: #59636e }",
        ".title { font-weight: bold }",
        ".grid { stroke: #d1d9e0; stroke-width: 1 }",
        "polyline { fill: none; stroke-width: 1.6 }",
        "polyline.onepass { stroke-width: 3 }",
    ]
    dark = [
        "rect { fill: #0d1117 }",
        "text { fill: #f0f6fc }",
        ".soft { fill: #9198a1 }",
        ".grid { stroke: #3d444d }",
    ]
    for peer, (_, on_light, on_dark, dashes) in LINES.items():
        light.append(f".{css(peer)} {{ stroke: {on_light}; stroke-dasharray: {dashes} }}")
        dark.append(f".{css(peer)} {{ stroke: {on_dark} }}")
    return " ".join(light) + " @media (prefers-color-scheme: dark) { " + " ".join(dark) + " }"


def css(peer: str) -> str:
    return peer.replace(".", "-")


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "soft") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def polyline(peer: str, points: Iterable[tuple[float, float]]) -> str:
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{css(peer)}" points="{corners}"/>'


def grid_line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def panel(rows: list[Row], dtype: str, left: float, right: float) -> list[str]:
    """The axes and the lines of one dtype."""
    rows = [row for row in rows if row["dtype"] == dtype]
    copy = {row["cols"]: row["us"] for row in rows if row["peer"] == "copy"}
    if not copy:
        raise Disagreement(f"python_peers.json: no copy in {dtype}")
    first, last = math.log2(min(copy)), math.log2(max(copy))

    def x_of(cols: int) -> float:
        return left + (right - left) * (math.log2(cols) - first) / (last - first)

    def y_of(percent: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * percent / PERCENT_MAX

    number_of_rows = rows[0]["rows"]
    lines = [text(left, TOP - 12, f"softmax of {number_of_rows} rows, {dtype}", kind="title")]
    for percent in PERCENT_TICKS:
        lines.append(grid_line(left, y_of(percent), right, y_of(percent)))
        lines.append(text(left - 8, y_of(percent) + 4, f"{percent} %", "end"))
    for cols in sorted(copy)[::2]:
        lines.append(grid_line(x_of(cols), BOTTOM, x_of(cols), BOTTOM + 5))
        lines.append(text(x_of(cols), BOTTOM + 20, f"{cols:,}", "middle"))
    lines.append(text((left + right) / 2, BOTTOM + 40, "columns", "middle"))

    for peer in LINES:
        own = sorted((row for row in rows if row["peer"] == peer), key=lambda row: row["cols"])
        if not own:
            raise Disagreement(f"python_peers.json: no {peer} in {dtype}")
        if not all(row["right"] for row in own):
            raise Disagreement(f"python_peers.json: {peer} in {dtype} is off by more than rounding")
        lines.append(
            polyline(
                peer,
                [(x_of(row["cols"]), y_of(100 * copy[row["cols"]] / row["us"])) for row in own],
            )
        )
    return lines


def legend() -> list[str]:
    lines = []
    x: float = PANELS[0][0]
    for peer in reversed(LINES):
        words = LINES[peer][0]
        lines.append(polyline(peer, [(x, 44), (x + 34, 44)]))
        lines.append(text(x + 42, 48, words, kind="title" if peer == "onepass" else ""))
        x += 42 + 6.2 * len(words) + 34
    return lines


def caption(environment: Row) -> list[str]:
    versions = ", ".join(
        f"{name} {environment[key]}"
        for name, key in (("PyTorch", "torch"), ("Triton", "triton"), ("CUDA", "cuda"))
    )
    return [
        f"{environment['gpu']}, {versions}, commit {environment['commit'][:12]}.",
        "Medians on cold caches, called from Python in one process: "
        "results/h200/python_peers.json.",
    ]


def svg(result: Row) -> str:
    rows = [
        row for row in result["rows"] if row["op"] == "softmax" and "us" in row
    ]  # a peer may be absent
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}">',
        "<title>softmax beside its peers, in percent of the rate of a copy</title>",
        f"<style>{style()}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}"/>',
        text(
            PANELS[0][0],
            22,
            "Rate in percent of a copy of the same bytes: higher is better",
            kind="",
        ),
        *legend(),
    ]
    for dtype, (left, right) in zip(DTYPES, PANELS):
        lines += panel(rows, dtype, left, right)
    for line, words in enumerate(caption(result["environment"])):
        lines.append(text(PANELS[0][0], HEIGHT - 28 + 18 * line, words))
    return "\n".join([*lines, "</svg>"]) + "\n"
