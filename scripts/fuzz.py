#!/usr/bin/env python3
"""Runs every target of libFuzzer for its share of the time, and prints a table.

Exit code 1: something was found.

    scripts/fuzz.py --seconds 300
    scripts/fuzz.py --targets npy,results --runs 10000000

Inputs that reached something new stay in build/fuzz/corpus/TARGET, where the next run begins. What
was found lies in build/fuzz/findings, an input a file; `onepass_fuzz reproduce TARGET FILE` says
what it means and runs it."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

TARGETS = ["api", "npy", "problem", "workload", "tuning", "results", "ncu"]
SHARES = {"api": 6}  # of the time; the others have one each
LONGEST = {"api": 512}  # bytes of an input; text may be longer
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "KMP_BLOCKTIME": "0",
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def command(
    program: pathlib.Path, target: str, folder: pathlib.Path, limit: list[str]
) -> list[str]:
    corpus, findings = folder / "corpus" / target, folder / "findings"
    words = folder / "seeds" / f"{target}.dict"
    return [
        str(program),
        str(corpus),
        str(folder / "seeds" / target),
        f"-artifact_prefix={findings}/{target}-",
        # libFuzzer takes an empty dictionary for a missing one, and the API's inputs have no words.
        *([f"-dict={words}"] if words.stat().st_size > 0 else []),
        f"-max_len={LONGEST.get(target, 4096)}",
        # Missing bytes are plain decisions: a short input is a dull call.
        *(["-len_control=0"] if target == "api" else []),
        "-print_final_stats=1",
        "-timeout=60",
        "-rss_limit_mb=4096",
        "-malloc_limit_mb=1024",
        *limit,
    ]


def row(target: str, log: str, findings: int) -> dict:
    """What a log of libFuzzer's says."""

    def last(pattern: str) -> int:
        found = re.findall(pattern, log)
        return int(found[-1]) if found else 0

    return {
        "target": target,
        "executions": last(r"stat::number_of_executed_units: (\d+)") or last(r"#(\d+)\s"),
        "per second": last(r"stat::average_exec_per_sec:\s+(\d+)") or last(r"exec/s: (\d+)"),
        "edges": last(r"cov: (\d+)"),
        "inputs kept": last(r"corp: (\d+)"),
        "findings": findings,
    }


def table(rows: list[dict]) -> str:
    heads = list(rows[0])
    cells = [heads] + [[str(r[h]) for h in heads] for r in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    )


def fuzz(target: str, folder: pathlib.Path, tree: pathlib.Path, limit: list[str]) -> dict:
    (folder / "corpus" / target).mkdir(parents=True, exist_ok=True)
    (folder / "findings").mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [tree / "fuzz/onepass_fuzz", "seeds", target, folder / "seeds" / target], check=True
    )
    before = set((folder / "findings").glob(f"{target}-*"))
    log = folder / f"{target}.log"
    with log.open("w") as out:
        ended = subprocess.run(
            command(tree / "fuzz/onepass_libfuzzer", target, folder, limit),
            env={**ENVIRONMENT, **os.environ, "ONEPASS_FUZZ_TARGET": target},
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    found = sorted(set((folder / "findings").glob(f"{target}-*")) - before)
    text = log.read_text(errors="replace")
    if ended.returncode != 0 and not found:
        print(
            f"fuzz: {target} ended with {ended.returncode}; its log is {log}\n{text[-2000:]}",
            file=sys.stderr,
        )
    for path in found:
        print(
            f"FOUND {target}: {path}\n  {tree}/fuzz/onepass_fuzz reproduce {target} {path}",
            file=sys.stderr,
        )
    return row(target, text, len(found) or int(ended.returncode != 0))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tree", type=pathlib.Path, default=pathlib.Path("build/fuzz"))
    parser.add_argument(
        "--seconds", type=int, default=300, help="of all targets together, on one core"
    )
    parser.add_argument(
        "--runs", type=int, help="executions of each target, however long they take"
    )
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    chosen = args.targets.split(",")
    parts = sum(SHARES.get(target, 1) for target in chosen)

    def limit(target: str) -> list[str]:
        if args.runs:
            return [f"-runs={args.runs}"]
        return [f"-max_total_time={max(args.seconds * SHARES.get(target, 1) // parts, 1)}"]

    with ThreadPoolExecutor(args.jobs) as pool:
        rows = list(
            pool.map(lambda target: fuzz(target, args.tree, args.tree, limit(target)), chosen)
        )
    print(table(rows))
    findings = sum(r["findings"] for r in rows)
    print(f"fuzz: {sum(r['executions'] for r in rows)} executions, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
