"""The budget of the build: what each CUDA unit may become, results/build/budget.json.

Kernels, bytes of machine code and lines of PTX come out the same wherever the same nvcc
runs, so each is an upper limit, to the byte. Seconds do not: machines differ, and so does
what else runs on them. They are judged against the rest of the build, see slow(), and best
written by a quiet machine.
"""

import collections

from build_tree import FIELDS, architectures_of

# A unit's seconds may pass the pace by this factor, and by this many seconds.
FACTOR = 2.0
SECONDS = 10.0
# Fewer units than this give no pace.
ENOUGH = 5
# Below this share of its budget, a unit has shrunk so far that the budget guards nothing.
SHRUNK = 0.8
# nvcc takes longer than this for an empty file; what is quicker came out of ccache.
COMPILED = 1.0


def is_cuda(unit):
    return unit["unit"].endswith(".cu")


def kept(row, unit):
    """Each architecture's numbers: this build's, and of the old budget what this build
    does not have."""
    numbers = {architecture: row[architecture] for architecture in architectures_of(row)}
    for architecture in architectures_of(unit):
        now = dict(unit[architecture])
        if now["ptx_lines"] == 0:  # machine code alone, as of a release's last architecture
            now["ptx_lines"] = numbers.get(architecture, now)["ptx_lines"]
        numbers[architecture] = now
    return dict(sorted(numbers.items()))


def written(units, old):
    """The rows of a new budget. The seconds of the old one stay where ccache gave the object, and
    where the code is not what ships."""
    rows = []
    for unit, _ in units:
        if is_cuda(unit) and architectures_of(unit):
            row = old.get(unit["unit"], {})
            seconds = unit["seconds"] or 0
            quick = all(architecture.endswith(" quick") for architecture in architectures_of(unit))
            if seconds < COMPILED or quick:
                seconds = row.get("seconds")
            rows.append(
                {"unit": unit["unit"], "seconds": seconds and round(seconds, 1), **kept(row, unit)}
            )
    return sorted(rows, key=lambda row: row["unit"])


def grown(unit, budget):
    """What is larger than its budget, in words."""
    for architecture in architectures_of(unit):
        for field in FIELDS if architecture in budget else ():
            has, may = unit[architecture][field], budget[architecture][field]
            where, what = f"{unit['unit']}: {architecture}", field.replace("_", " ")
            if has > may:
                yield f"{where}: {has:,} {what}, {may:,} allowed"


def shrunk(unit, budget):
    for architecture in architectures_of(unit):
        for field in FIELDS if architecture in budget else ():
            has, may = unit[architecture][field], budget[architecture][field]
            where, what = f"{unit['unit']}: {architecture}", field.replace("_", " ")
            # An architecture without PTX of its own is not one that has lost it.
            if has < SHRUNK * may and not (field == "ptx_lines" and has == 0):
                yield f"{where}: {has:,} {what}, {may:,} in the budget"


def slow(units, budget):
    """What took over twice its seconds, at the pace of this build.

    A machine that is 2.5 times slower is so for all units, and load comes and goes: one source took
    18 s and 106 s within an hour, on the same two cores. So a unit has to stand out against every
    other one: the pace is the largest ratio, of seconds taken to seconds allowed, among the others,
    and at least 1. Two that become slow at once hide each other; a test that fails on a busy
    machine would guard less.

    What says nothing about the source is left out:
    - Units of other runs of ninja. One file compiled again by itself has nothing to stand out
      against. So the largest run counts, where it has at least ENOUGH units.
    - What came out of ccache.
    - A few seconds more, whatever their ratio.
    """
    timed = [
        (unit, entry)
        for unit, entry in units
        if entry and entry.seconds >= COMPILED and budget.get(unit["unit"], {}).get("seconds")
    ]
    # Within one run `began` agrees to parts of a second.
    runs = collections.defaultdict(list)
    for unit, entry in timed:
        near = next((began for began in runs if abs(began - entry.began) < 2), entry.began)
        runs[near].append((unit["unit"], entry.seconds, budget[unit["unit"]]["seconds"]))
    run = max(runs.values(), key=len, default=[])
    if len(run) < ENOUGH:
        return
    for name, taken, allowed in run:
        pace = max(1, *(seconds / may for other, seconds, may in run if other != name))
        if taken > FACTOR * pace * allowed and taken > pace * allowed + SECONDS:
            expected = f"{pace * allowed:.0f} s expected at the pace of this build"
            yield f"{name}: {taken:.0f} s, {expected}"


def compared(units, budget):
    """(problems, notes): lines of what passes the budget, and of what the budget should follow."""
    problems, notes = [], []
    here = [unit for unit, _ in units if is_cuda(unit)]
    for unit in here:
        row = budget.get(unit["unit"])
        if unit["object_bytes"] is None:
            problems.append(f"{unit['unit']}: not compiled; `make build` does")
        elif row is None:
            problems.append(f"{unit['unit']}: has no budget")
        else:
            problems += grown(unit, row)
            notes += shrunk(unit, row)
    notes += [f"{name}: is gone" for name in budget if name not in {unit["unit"] for unit in here}]
    return problems + list(slow(units, budget)), notes
