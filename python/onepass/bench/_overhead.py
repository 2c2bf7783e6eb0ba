"""The host's cost of a call, measured on tiny tensors, whose computation takes next to nothing.

Functions take turns, one batch of calls each, in a new order every round: a launch gets a third
cheaper while a GPU wakes up, which would otherwise count against the function that runs first, or
after one that leaves the GPU idle."""

import contextlib
import random
import statistics
import timeit

import torch
import torch.nn.functional as F

import onepass
import onepass.torch

_CALLS = 500  # per batch: fewer than a GPU's queue holds, so that no call waits
_WARM_UP = 10  # rounds that do not count
_ROUNDS = 30

_STATEMENTS = [
    "onepass.softmax(x)",
    "onepass.softmax(x, out=out)",
    "onepass.softmax(x, scale=0.5, temperature=0.7, causal=True)",
    "onepass.cross_entropy(x, target)",
    "onepass.topk(x, 4)",
    "onepass.sample(x, top_k=4)",
    "onepass.attention(q, q, q, causal=True)",
    "onepass.torch.softmax(x)",
    "onepass.torch.softmax(leaf)",
    "onepass.torch.attention(q, q, q, causal=True)",
    "torch.softmax(x, -1)",
    "torch.softmax(leaf, -1)",
    "F.scaled_dot_product_attention(q, q, q, is_causal=True)",
    "torch.empty_like(x)",
]
_OF_NUMPY = ["onepass.softmax(array)", "onepass.softmax(array, out=array_out)"]
_ON_A_STREAM = ["onepass.softmax(x)", "onepass.softmax(x, out=out)", "torch.softmax(x, -1)"]


def overhead(device: str) -> list[tuple[str, float]]:
    """(function, µs per call), medians of batches."""
    torch.set_num_threads(1)
    x = torch.randn(4, 64, device=device)
    names = {
        "F": F,
        "onepass": onepass,
        "torch": torch,
        "x": x,
        "leaf": x.clone().requires_grad_(),
        "out": torch.empty_like(x),
        "target": torch.zeros(4, dtype=torch.int64, device=device),
        "q": torch.randn(1, 1, 4, 64, device=device),
    }
    here = contextlib.nullcontext()
    where: dict[str, tuple[str, contextlib.AbstractContextManager]] = {
        each: (each, here) for each in _STATEMENTS
    }
    if device == "cpu":
        names |= {"array": x.numpy(), "array_out": x.numpy().copy()}
        where |= {each: (each, here) for each in _OF_NUMPY}
    else:
        stream = torch.cuda.stream(torch.cuda.Stream())
        where |= {f"{each} on a stream": (each, stream) for each in _ON_A_STREAM}
    batches: dict[str, list[float]] = {name: [] for name in where}
    order = random.Random(0)
    for _ in range(_WARM_UP + _ROUNDS):
        for name in order.sample(list(where), len(where)):
            statement, there = where[name]
            with there:
                batches[name].append(_microseconds(timeit.Timer(statement, globals=names), device))
    return [(name, statistics.median(each[_WARM_UP:])) for name, each in batches.items()]


def _microseconds(timer: timeit.Timer, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return timer.timeit(_CALLS) / _CALLS * 1e6
