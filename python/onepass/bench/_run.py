"""Runs every peer of an op on every shape and dtype: first checks its result, then times it."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from onepass.bench import _timing
from onepass.bench._ops import OPS, Inputs
from onepass.bench._report import BOUNDS, Row, shape_of

_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


# An Op, the function that makes its inputs, and the name of the case.
Case = tuple[Any, Callable[[], Any], Row]


def row_cases(
    command: str, shapes: list[tuple[int, ...]], dtypes: list[str], device: str
) -> Iterator[Case]:
    for name in OPS if command == "all" else [command]:
        for dtype in dtypes:
            for count, cols in shapes:
                build = functools.partial(Inputs.random, count, cols, getattr(torch, dtype), device)
                yield OPS[name], build, {"op": name, "rows": count, "cols": cols, "dtype": dtype}


def run(cases: Iterable[Case], device: str, peers: list[str] | None, seconds: float) -> list[Row]:
    rows: list[Row] = []
    for op, build, case in cases:
        _progress(f"{case['op']} {shape_of(case)} {case['dtype']} …")
        rows += _measure(op, build(), case, device, peers, seconds)
    _progress("")
    return rows


def _progress(text: str) -> None:
    """On a terminal, one line that is overwritten."""
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def _measure(
    op: Any, inputs: Any, case: Row, device: str, wanted: list[str] | None, seconds: float
) -> list[Row]:
    rows = []
    expected = op.reference(inputs)
    for peer, build in op.peers.items():
        if wanted is not None and peer not in wanted:
            continue
        row = case | {"peer": peer}
        try:
            call = build(inputs)
            right = peer in BOUNDS or _agrees(call(), expected, inputs.dtype)
            times = _timing.measure(call, device, seconds)
        except ImportError as error:
            row["absent"] = f"not installed ({error})"
        except Exception as error:  # whatever a peer does, the others are still measured
            first_line = next(iter(str(error).splitlines()), "")
            row["absent"] = f"failed: {type(error).__name__}: {first_line}"
        else:
            row |= {"us": times.median, "low": times.low, "high": times.high, "right": right}
            row |= op.rates(inputs, times.median)
        rows.append(row)
    return rows


def _agrees(result: Any, expected: torch.Tensor | None, dtype: torch.dtype) -> bool:
    if expected is None:
        return True
    first = result[0] if isinstance(result, tuple) else result
    if (
        first.shape != expected.shape
    ):  # a peer that only has some K: what it gives is right, or it is not
        first, expected = first[..., : expected.shape[-1]], expected[..., : first.shape[-1]]
    return torch.allclose(first.float(), expected, rtol=_TOLERANCE[dtype], atol=_TOLERANCE[dtype])
