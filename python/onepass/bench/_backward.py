"""Attention's gradients beside PyTorch's. Both take turns, with a rest before each call: a clock
that falls under load, or a neighbour on the machine, then meets both alike."""

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

import onepass
from onepass.bench._report import Row

Gradients = tuple[torch.Tensor, ...]

_WARM_UP = 2  # rounds that do not count


def measure(
    shapes: list[tuple[int, ...]],
    dtypes: list[str],
    device: str,
    causal: bool,
    rounds: int,
    rest: float,
) -> list[Row]:
    """A row per shape, dtype and peer. That of torch has `ratio`, its time in units of ours: the
    median over the rounds, and the 20th and 80th percentiles."""
    rows: list[Row] = []
    for shape in shapes:
        for dtype in dtypes:
            calls = _calls(shape, getattr(torch, dtype), device, causal)
            first, second = (call() for call in calls.values())
            right = all(_agree(a, b) for a, b in zip(first, second, strict=True))
            times = _in_turns(calls, device, rounds, rest)
            said = ", ".join(["×".join(map(str, shape))] + ["causal"] * causal)
            for peer, each in times.items():
                low, median, high = _spread(each)
                rows.append({"op": "attention_backward", "shape": said, "dtype": dtype,
                             "peer": peer, "us": median, "low": low, "high": high,
                             "right": right, "tflops": _flops(shape, causal) / median / 1e6,
                             "fastest": min(each)})  # fmt: skip
            ratios = [b / a for a, b in zip(times["onepass"], times["torch"], strict=True)]
            low, median, high = _spread(ratios)
            rows[-1]["ratio"] = {"median": median, "low": low, "high": high}
    return rows


def _calls(
    shape: tuple[int, ...], dtype: torch.dtype, device: str, causal: bool
) -> dict[str, Callable[[], Gradients]]:
    generator = torch.Generator(device).manual_seed(1)
    q, k, v, d_o = (
        torch.randn(shape, device=device, generator=generator).to(dtype) for _ in range(4)
    )
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    result = F.scaled_dot_product_attention(*leaves, is_causal=causal)
    o, lse = onepass.attention(q, k, v, causal=causal, return_lse=True)
    return {
        "onepass": lambda: onepass.attention_backward(q, k, v, o, lse, d_o, causal=causal),
        "torch": lambda: torch.autograd.grad(result, leaves, d_o, retain_graph=True),
    }


def _agree(a: torch.Tensor, b: torch.Tensor) -> bool:
    tolerance = 1e-4 if a.dtype == torch.float32 else 3e-2
    return torch.allclose(a.float(), b.float(), rtol=tolerance, atol=tolerance)


def _in_turns(
    calls: dict[str, Callable[[], Gradients]], device: str, rounds: int, rest: float
) -> dict[str, list[float]]:
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times: dict[str, list[float]] = {peer: [] for peer in calls}
    for _ in range(_WARM_UP + rounds):
        for peer, call in calls.items():
            time.sleep(rest)
            begin = time.perf_counter()
            call()
            wait()
            times[peer].append((time.perf_counter() - begin) * 1e6)
    return {peer: each[_WARM_UP:] for peer, each in times.items()}


def _spread(samples: list[float]) -> tuple[float, float, float]:
    ordered = sorted(samples)
    at = [ordered[int(share * (len(ordered) - 1))] for share in (0.2, 0.8)]
    return at[0], statistics.median(ordered), at[1]


def _flops(shape: tuple[int, ...], causal: bool) -> float:
    """Five products over the pairs that no mask hides."""
    batch, heads, queries, dim = shape
    pairs = queries * (queries + 1) // 2 if causal else queries * queries
    return 10.0 * batch * heads * pairs * dim
