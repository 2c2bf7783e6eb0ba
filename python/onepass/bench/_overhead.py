"""What a call costs the host: tiny tensors, so that nothing is left but the way there.

Calls take turns, a batch each, in another order every time: what a launch costs falls by a third while a GPU wakes up,
and would otherwise be charged to whoever comes first, or after one that leaves the GPU alone.
"""

import random
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

import onepass
import onepass.torch

_CALLS = 500  # in a batch: fewer than a GPU's queue holds, so that nobody waits for it
_WARM_UP = 10  # rounds that do not count
_ROUNDS = 30


def overhead(device: str) -> list[tuple[str, float]]:
    """(what, µs a call), medians of batches."""
    torch.set_num_threads(1)
    x = torch.randn(4, 64, device=device)
    leaf = x.clone().requires_grad_()
    out = torch.empty_like(x)
    target = torch.zeros(4, dtype=torch.int64, device=device)
    q = torch.randn(1, 1, 4, 64, device=device)
    calls: dict[str, Callable[[], object]] = {
        "onepass.softmax": lambda: onepass.softmax(x),
        "onepass.softmax(out=)": lambda: onepass.softmax(x, out=out),
        "onepass.softmax, options": lambda: onepass.softmax(x, scale=0.5, temperature=0.7, causal=True),
        "onepass.cross_entropy": lambda: onepass.cross_entropy(x, target),
        "onepass.topk": lambda: onepass.topk(x, 4),
        "onepass.sample": lambda: onepass.sample(x, top_k=4),
        "onepass.attention": lambda: onepass.attention(q, q, q, causal=True),
        "onepass.torch.softmax": lambda: onepass.torch.softmax(x),
        "onepass.torch.softmax, gradient": lambda: onepass.torch.softmax(leaf),
        "torch.softmax, gradient": lambda: torch.softmax(leaf, -1),
        "onepass.torch.attention": lambda: onepass.torch.attention(q, q, q, causal=True),
        "torch SDPA": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        "torch.softmax": lambda: torch.softmax(x, -1),
        "torch.empty_like": lambda: torch.empty_like(x),
    }
    if device == "cpu":
        array, array_out = x.numpy(), out.numpy()
        calls["onepass.softmax, NumPy"] = lambda: onepass.softmax(array)
        calls["onepass.softmax(out=), NumPy"] = lambda: onepass.softmax(array, out=array_out)
    batches: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(0)
    for _ in range(_WARM_UP + _ROUNDS):
        for name in order.sample(list(calls), len(calls)):
            batches[name].append(_microseconds(calls[name], device))
    return [(name, statistics.median(each[_WARM_UP:])) for name, each in batches.items()]


def _microseconds(call: Callable[[], object], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(_CALLS):
        call()
    return (time.perf_counter() - begin) / _CALLS * 1e6
