"""Every peer of an op on every shape and dtype: first whether it is right, then how long it takes."""

import sys
from typing import Any

import torch

from onepass.bench import _timing
from onepass.bench._ops import OPS, Inputs, Op
from onepass.bench._report import BOUNDS, Row

_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def run(
    command: str,
    shapes: list[tuple[int, ...]],
    dtypes: list[str],
    device: str,
    peers: list[str] | None,
    seconds: float,
) -> list[Row]:
    rows: list[Row] = []
    for name in OPS if command == "all" else [command]:
        for dtype in dtypes:
            for count, cols in shapes:
                _progress(f"{name} {count}x{cols} {dtype} …")
                inputs = Inputs.random(count, cols, getattr(torch, dtype), device)
                case = {"op": name, "rows": count, "cols": cols, "dtype": dtype}
                rows += _measure(OPS[name], inputs, case, device, peers, seconds)
    _progress("")
    return rows


def _progress(text: str) -> None:
    """On a terminal, one line that is written over."""
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def _measure(op: Op, inputs: Inputs, case: Row, device: str, wanted: list[str] | None, seconds: float) -> list[Row]:
    rows = []
    expected = op.reference(inputs)
    moved = op.moves * inputs.x.numel() * inputs.x.element_size()
    for peer, build in op.peers.items():
        if wanted is not None and peer not in wanted:
            continue
        row = case | {"peer": peer}
        try:
            call = build(inputs)
            right = peer in BOUNDS or _agrees(call(), expected, inputs.x.dtype)
            times = _timing.measure(call, device, seconds)
        except ImportError as error:
            row["absent"] = f"not installed ({error})"
        except Exception as error:  # whatever a peer does, the others are still measured
            row["absent"] = f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        else:
            row |= {"us": times.median, "low": times.low, "high": times.high, "right": right}
            row["gbs"] = moved / times.median / 1e3
        rows.append(row)
    return rows


def _agrees(result: Any, expected: torch.Tensor | None, dtype: torch.dtype) -> bool:
    if expected is None:
        return True
    first = result[0] if isinstance(result, tuple) else result
    if first.shape != expected.shape:  # a peer that only has some K: what it gives is right, or it is not
        first, expected = first[..., : expected.shape[-1]], expected[..., : first.shape[-1]]
    return torch.allclose(first.float(), expected, rtol=_TOLERANCE[dtype], atol=_TOLERANCE[dtype])
