#!/usr/bin/env python3
"""What the build costs and what comes of it: seconds, kernels, machine code and PTX.

scripts/build_report.py                  per translation unit and per family of kernels
scripts/build_report.py --json FILE      the same, kept
scripts/build_report.py --kernels        every kernel, largest first
scripts/build_report.py --check          exit 1 when a CUDA unit outgrows
                                         results/build/budget.json
scripts/build_report.py --write-budget   writes that file from this build
"""

import argparse
import json
import pathlib
import sys

import build_budget
import build_tree
import gpu_code

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUDGET = "results/build/budget.json"


def count(value):
    return "–" if value is None else f"{value:,}"


def table(title, rows, name, architectures, ptx):
    """Columns: the name, seconds, bytes of the object where there is one, then three per
    architecture."""
    with_object = "object_bytes" in rows[0]
    head = [title, "seconds"] + ["object bytes"] * with_object
    for architecture in architectures:
        head += [f"{architecture} kernels", "bytes"] + ["PTX lines"] * ptx
    lines = [head]
    for row in rows:
        seconds = row["seconds"]
        line = [row[name], "–" if seconds is None else f"{seconds:.1f}"]
        if with_object:
            line.append(count(row["object_bytes"]))
        for architecture in architectures:
            code = row.get(architecture, {})
            line += [count(code.get("kernels")), count(code.get("bytes"))]
            line += [count(code.get("ptx_lines"))] * ptx
        lines.append(line)
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        cells = [line[0].ljust(widths[0])] + [
            cell.rjust(width) for cell, width in zip(line[1:], widths[1:])
        ]
        print("  ".join(cells).rstrip())
    print()


def kept(environment, totals, artifacts, units, families):
    """The JSON, one row per line, so that a difference reads well."""

    def rows(items):
        return ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in items)

    def rounded(row):
        seconds = row["seconds"]
        return {**row, "seconds": None if seconds is None else round(seconds, 1)}

    parts = ['"schema": 1', f'"environment": {json.dumps(environment)}']
    if totals is not None:
        parts += [
            f'"totals": {json.dumps(rounded(totals))}',
            f'"artifacts": {json.dumps(artifacts)}',
        ]
    parts.append('"units": [\n' + rows(map(rounded, units)) + "\n]")
    if families is not None:
        parts.append('"families": [\n' + rows(map(rounded, families)) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"build-report: {path} written")


def load_budget(path):
    budget = json.loads(path.read_text(encoding="utf-8"))
    return budget["environment"], {row["unit"]: row for row in budget["units"]}


def report(arguments, environment, units, kernels):
    rows = sorted(
        (unit for unit, _ in units if unit["object_bytes"] is not None),
        key=lambda unit: (build_tree.machine_code(unit), unit["seconds"] or 0),
        reverse=True,
    )
    if not rows:
        raise build_tree.NotBuilt(f"nothing is compiled in {arguments.tree} yet: `make build` does")
    families = build_tree.families_of(rows, kernels)
    totals = build_tree.totals_of(rows)
    architectures = environment["architectures"]
    table("translation unit", [*rows, {"unit": "all", **totals}], "unit", architectures, True)
    if arguments.kernels:
        readable = gpu_code.demangled([name for _, _, name, _ in kernels])
        for unit, architecture, name, size in sorted(
            kernels, key=lambda kernel: kernel[3], reverse=True
        ):
            print(f"{size:9,}  {architecture}  {unit}  {readable[name]}")
        print()
    if families:
        table("family of kernels", families, "family", architectures, False)
    artifacts = build_tree.artifacts_of(arguments.tree)
    for name, size in artifacts.items():
        print(f"{name}: {size:,} bytes")
    if len(rows) < len(units):
        print(f"not compiled yet: {len(units) - len(rows)} of {len(units)} units")
    about = [
        environment["build_type"],
        environment["compiler"],
        f"nvcc {environment['nvcc'] or 'none'}",
        f"{environment['cores']} cores",
        environment["commit"][:12],
    ]
    print(", ".join(part for part in about if part))
    print(
        "Seconds are those of each unit's last compilation, with whatever ran beside it; ccache"
        " makes them short. A family's are its share, by bytes, of its units'."
    )
    if arguments.json:
        write(arguments.json, kept(environment, totals, artifacts, rows, families))
    return 0


def skipped(why):
    print(f"build-report: SKIPPED: {why}")
    return 0


def rewriting(tree):
    """The command that writes the budget from this tree."""
    release = tree.resolve() == ROOT / "build/release"
    return f"make build-report{'' if release else f' TREE={tree}'} ARGS=--write-budget"


def check(arguments, environment, units):
    written_with, budget = load_budget(arguments.budget)
    if written_with["nvcc"] != environment["nvcc"]:
        return skipped(
            f"the budget was written with nvcc {written_with['nvcc']}, "
            f"this build is by {environment['nvcc']}"
        )
    known = [
        architecture
        for architecture in environment["architectures"]
        if architecture in written_with["architectures"]
    ]
    if environment["architectures"] and not known:
        return skipped(
            f"the budget is of {', '.join(written_with['architectures'])}, "
            f"this build of {', '.join(environment['architectures'])}"
        )
    problems, notes = build_budget.compared(units, budget)
    for note in notes:
        print(f"build-report: note: {note}")
    if notes:
        print(f"build-report: note: rewrite the budget: `{rewriting(arguments.tree)}`")
    for problem in problems:
        print(f"build-report: {problem}", file=sys.stderr)
    if problems:
        print(
            "build-report: over budget, or without one: make it smaller, or "
            f"`{rewriting(arguments.tree)}` and say why in the commit",
            file=sys.stderr,
        )
        return 1
    print(
        f"build-report: {sum(map(build_budget.is_cuda, (unit for unit, _ in units)))} CUDA units "
        f"within their budget ({', '.join(known)})"
    )
    return 0


def write_budget(arguments, environment, units):
    old = load_budget(arguments.budget)[1] if arguments.budget.exists() else {}
    rows = build_budget.written(units, old)
    unknown = [row["unit"] for row in rows if row["seconds"] is None]
    if unknown:
        print(
            f"build-report: no seconds for {len(unknown)} units: ccache had them, or ninja's log "
            "has not"
        )
    of_all = sorted(
        {architecture for row in rows for architecture in build_tree.architectures_of(row)}
    )
    write(arguments.budget, kept({**environment, "architectures": of_all}, None, None, rows, None))
    return 0


def main():
    parser = argparse.ArgumentParser(prog="build_report.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--tree", type=pathlib.Path, default=ROOT / "build/release", help="the build tree"
    )
    parser.add_argument("--json", type=pathlib.Path, help="keep the report")
    parser.add_argument("--kernels", action="store_true", help="list every kernel, too")
    parser.add_argument(
        "--budget", type=pathlib.Path, default=ROOT / BUDGET, help="the budget's file"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--check", action="store_true", help="exit 1 when a CUDA unit outgrows its budget"
    )
    action.add_argument(
        "--write-budget", action="store_true", help="write the budget from this build"
    )
    arguments = parser.parse_args()
    strict = arguments.check or arguments.write_budget

    try:
        cuda = build_tree.has_cuda(arguments.tree)
        if arguments.check and not arguments.budget.exists():
            return skipped(f"there is no {arguments.budget} yet")
        if strict and not cuda:
            return skipped(f"{arguments.tree} has no CUDA parts")
        cuobjdump = None
        try:
            nvcc = build_tree.cmake_value(
                arguments.tree, "CMakeFiles/*/CMakeCUDACompiler.cmake", "CMAKE_CUDA_COMPILER"
            )
            cuobjdump = gpu_code.find_cuobjdump(nvcc, ROOT / "build/cuobjdump") if cuda else None
        except gpu_code.NoTool as missing:
            if strict:
                return skipped(str(missing))
            print(f"build-report: {missing}: kernels are left out")
        units, kernels = build_tree.units_of(arguments.tree, cuobjdump)
        environment = build_tree.environment_of(arguments.tree)
        environment["architectures"] = sorted(
            {field for unit, _ in units for field in build_tree.architectures_of(unit)}
        )
        if arguments.check:
            return check(arguments, environment, units)
        if arguments.write_budget:
            return write_budget(arguments, environment, units)
        return report(arguments, environment, units, kernels)
    except build_tree.NotBuilt as missing:
        print(f"build-report: {missing}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
