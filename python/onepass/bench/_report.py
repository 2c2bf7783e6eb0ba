"""Writes measurements as a table, as JSON and as a picture."""

import json
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

BOUNDS = ("copy", "read")  # not peers, but the limits of memory
_UNITS = {"gbs": "GB/s", "tflops": "TFLOP/s"}


def shape_of(row: Row) -> str:
    return row.get("shape") or f"{row['rows']}×{row['cols']}"


def rate_of(row: Row) -> str:
    """Which rate tells more: attention computes, the others move bytes."""
    return "tflops" if "tflops" in row else "gbs"


def environment(device: str) -> dict[str, str]:
    import torch

    import onepass

    found = {
        "onepass": onepass.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    try:
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        pass
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
        found["cuda"] = str(torch.version.cuda)
    else:
        found["cpu"] = platform.processor() or platform.machine()
        found["threads"] = str(torch.get_num_threads())
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    found["commit"] = git.stdout.strip() or "unknown"
    return found


def table(rows: Iterable[Row]) -> str:
    """One line per case, one column of µs per peer; then our GB/s over the fewest bytes to move
    (for attention, TFLOP/s), and the time of the fastest peer in units of ours."""
    rows = list(rows)
    timed = [row for row in rows if "us" in row]
    peers = list(dict.fromkeys(row["peer"] for row in timed))
    unit = _UNITS[rate_of(timed[0]) if timed else "gbs"]
    cases: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        of = cases.setdefault((row["op"], shape_of(row), row["dtype"]), {})
        if "us" in row:
            of[row["peer"]] = row
    lines = [["op", "shape", "dtype", *(f"{peer} µs" for peer in peers), unit, "× best peer"]]
    for case, of in cases.items():
        times = [_time(of[peer]) if peer in of else "–" for peer in peers]
        ours = of.get("onepass")
        others = [
            row["us"]
            for peer, row in of.items()
            if not peer.startswith("onepass") and peer not in BOUNDS
        ]
        rate = _rate(ours[rate_of(ours)]) if ours else "–"
        lead = f"{min(others) / ours['us']:.2f}" if ours and others else "–"
        lines.append([*case, *times, rate, lead])
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines]
    if any(not row.get("right", True) for row in rows):
        text.append("!  differs from a float32 reference by more than rounding")
    absent = dict.fromkeys(f"{row['peer']}: {row['absent']}" for row in rows if "absent" in row)
    return "\n".join([*text, *absent])


def _time(row: Row) -> str:
    return f"{row['us']:.1f}" + ("" if row["right"] else " !")


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def write_json(path: str, device: str, rows: list[Row]) -> None:
    Path(path).write_text(
        json.dumps({"environment": environment(device), "rows": rows}, indent=1) + "\n"
    )


def plot(measured: dict[str, Any], path: str) -> None:
    """Plots time and GB/s over columns, a pair of pictures per op, dtype and number of rows; for
    attention, TFLOP/s over keys."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in measured["rows"] if "us" in row]
    peers = list(dict.fromkeys(row["peer"] for row in rows))

    def group_of(row: dict[str, Any]) -> tuple[str, str, str]:
        return row["op"], row["dtype"], row.get("group") or f"{row['rows']} rows"

    groups = list(dict.fromkeys(map(group_of, rows)))
    figure, axes = pyplot.subplots(
        len(groups), 2, figsize=(12, 4.2 * len(groups)), squeeze=False, layout="constrained"
    )
    for (time, rate), group in zip(axes, groups):
        own = [row for row in rows if group_of(row) == group]
        kind = rate_of(own[0])
        for peer in dict.fromkeys(row["peer"] for row in own):
            color = f"C{peers.index(peer)}"  # the same in all pictures
            line = sorted((row for row in own if row["peer"] == peer), key=lambda row: row["cols"])
            style = {
                "color": color,
                "marker": "o",
                "markersize": 3,
                "linewidth": 2.4 if peer == "onepass" else 1.3,
                "linestyle": "--" if peer in BOUNDS else "-",
                "label": peer,
            }
            cols = [row["cols"] for row in line]
            time.plot(cols, [row["us"] for row in line], **style)
            rate.plot(cols, [row[kind] for row in line], **style)
        for axis, label in ((time, "µs"), (rate, _UNITS[kind])):
            axis.set_xscale("log", base=2)
            op, dtype, said = group
            axis.set(
                xlabel="keys" if "group" in own[0] else "columns",
                ylabel=label,
                title=f"{op}, {said}, {dtype}",
            )
            axis.grid(alpha=0.3)
        time.set(yscale="log")
        time.legend(fontsize=8)
    where = measured["environment"]
    figure.suptitle(
        f"{where.get('gpu') or where.get('cpu')}, torch {where['torch']}, cold L2", fontsize=10
    )
    figure.savefig(path, dpi=150)
