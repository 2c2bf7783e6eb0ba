#!/usr/bin/env python3
"""Which folder of src/ and of cli/ may include which: only down, never sideways, never in a circle.

    scripts/floors.py           says every arrow that must not be; exit 1 when there is one
    scripts/floors.py --print   draws the floors, and how many includes lead from each to the others

Every `#include "..."` of every source is resolved, of .cu and .cuh as of .cpp and .hpp.
"""

import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# From the ground up. A folder may include its own floor and those below it.
FLOORS = [
    "include/onepass",
    "core",
    "merge",
    "runtime",
    "rows",
    "ops",
    "dispatch",
    "api",
    "oracle",
    "cli/files",
    "cli/gpu",
    "cli/problem",
    "cli/ops",
    "cli/measure",
    "cli/profile",
    "cli/commands",
    "cli",
]
# Inside an op, and inside rows: what runs on a CPU, on a GPU, and to be read. None of them
# includes another.
WINGS = {"cpu", "gpu", "walk"}
# Lines of our headers that the first step of a walk may stand on, so that it can be read from the
# ground up.
FIRST_STEPS = {
    "src/ops/softmax/walk/00_naive.cu": 600,
    "src/ops/select/walk/00_unfused.cu": 900,
    "src/ops/attention/walk/00_naive.cu": 900,
}

# Written by the build.
GENERATED = {"onepass_build.hpp"}

SOURCES = {".hpp", ".cpp", ".cuh", ".cu", ".def", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')

Arrow = collections.namedtuple("Arrow", "source line target")


def sources(root):
    for folder in ("include", "src", "oracle", "cli"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCES:
                yield path


def resolve(root, source, text):
    """The file that an include names: beside its source, below src, include or the root. None:
    there is none."""
    for folder in (source.parent, root / "src", root / "include", root):
        if (folder / text).is_file():
            return (folder / text).resolve()
    return None


def place(root, path):
    """(floor, op, wing) of a file; the last two are empty where there is none."""
    relative = path.relative_to(root)
    if relative.parts[0] == "include":
        return "include/onepass", "", ""
    if relative.parts[0] != "src":
        return "/".join(relative.parts[:-1][:2]), "", ""
    parts = relative.parts[1:-1]
    floor, rest = parts[0], parts[1:]
    op, rest = (rest[0], rest[1:]) if floor == "ops" and rest else ("", rest)
    wing = rest[0] if rest and rest[0] in WINGS else ""
    return floor, op, wing


def folder(root, path):
    return str(path.parent.relative_to(root))


def mistake(root, arrow):
    """What is wrong with an arrow, or nothing."""
    here, there = place(root, arrow.source), place(root, arrow.target)
    for floor in (here[0], there[0]):
        if floor not in FLOORS:
            return f"{floor} is no floor"
    if FLOORS.index(there[0]) > FLOORS.index(here[0]):
        return f"{here[0]} includes {there[0]}, which lies above it"
    if here[0] == there[0] == "ops" and here[1] != there[1]:
        return f"ops/{here[1]} includes its neighbour ops/{there[1]}"
    if here[:2] == there[:2] and here[2] and there[2] and here[2] != there[2]:
        return f"{here[2]} includes {there[2]}"
    if here[2] == "walk" and there[2] in ("cpu", "gpu"):
        return f"walk includes {there[0]}/{there[2]}, which is what ships"
    return ""


def headers_below(arrows, source):
    """What a source includes, and what that includes, and so on."""
    below = collections.defaultdict(set)
    for arrow in arrows:
        below[arrow.source.resolve()].add(arrow.target)
    found, todo = set(), [source.resolve()]
    while todo:
        for target in below[todo.pop()] - found:
            found.add(target)
            todo.append(target)
    return found


def too_tall(root, arrows):
    """First steps that stand on more lines than they may."""
    for name, most in FIRST_STEPS.items():
        if not (root / name).is_file():
            continue
        lines = sum(
            len(header.read_text(encoding="utf-8").splitlines())
            for header in headers_below(arrows, root / name)
        )
        if lines > most:
            yield f"{name}: stands on {lines} lines of headers, {most} at most"


def circle(graph):
    """Folders that include each other in a circle, the first found; empty: there is none."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node) :] + [node]
        if node in done:
            return []
        path.append(node)
        for after in sorted(graph.get(node, ())):
            if found := visit(after):
                return found
        path.pop()
        done.add(node)
        return []

    for node in sorted(graph):
        if found := visit(node):
            return found
    return []


def look(root):
    """(arrows, mistakes as lines of text)."""
    arrows, mistakes = [], []
    for source in sources(root):
        for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
            found = INCLUDE.match(line)
            if not found or found[1] in GENERATED:
                continue
            where = f"{source.relative_to(root)}:{number}"
            target = resolve(root, source, found[1])
            if target is None:
                mistakes.append(f'{where}: "{found[1]}" does not exist')
                continue
            arrow = Arrow(source, number, target)
            arrows.append(arrow)
            if wrong := mistake(root, arrow):
                mistakes.append(f"{where}: {wrong} ({found[1]})")
    graph = collections.defaultdict(set)
    for arrow in arrows:
        here, there = folder(root, arrow.source), folder(root, arrow.target)
        if here != there:
            graph[here].add(there)
    if round_trip := circle(graph):
        mistakes.append("a circle: " + " -> ".join(round_trip))
    mistakes += too_tall(root, arrows)
    return arrows, mistakes


def drawing(root, arrows):
    counts = collections.Counter(
        (place(root, a.source)[0], place(root, a.target)[0]) for a in arrows
    )
    width = max(map(len, FLOORS))
    for floor in reversed(FLOORS):
        below = [
            f"{name} {counts[floor, name]}"
            for name in reversed(FLOORS)
            if name != floor and counts[floor, name]
        ]
        print(f"{floor.ljust(width)}  {', '.join(below)}".rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--print", action="store_true", help="draw the floors")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    arrows, mistakes = look(flags.root)
    if flags.print:
        drawing(flags.root, arrows)
    for line in mistakes:
        print(line)
    if not flags.print and not mistakes:
        print(f"{len(arrows)} includes, all of them down")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
