"""Times calls: medians of single calls, each with none of its arrays in the caches."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

# Several times any L2, and long enough to write that the host gets ahead of the GPU.
_FLUSH_BYTES = 512 << 20


@dataclass(frozen=True)
class Times:
    """Microseconds."""

    median: float
    low: float  # the 20th percentile
    high: float  # the 80th


def measure(call: Callable[[], object], device: str, seconds: float = 0.3) -> Times:
    for _ in range(3):
        call()
    samples = _on_gpu(call, seconds) if device == "cuda" else _on_cpu(call, seconds)
    samples.sort()
    at = lambda share: samples[int(share * (len(samples) - 1))]  # noqa: E731
    return Times(statistics.median(samples), at(0.2), at(0.8))


def _on_gpu(call: Callable[[], object], seconds: float) -> list[float]:
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def run(count: int) -> list[float]:
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for begin, end in marks:
            flush.zero_()
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e3 for begin, end in marks]

    once = statistics.median(run(5)) + 200  # with the time of the flush
    return run(max(20, min(1000, int(seconds * 1e6 / once))))


def _on_cpu(call: Callable[[], object], seconds: float) -> list[float]:
    flush = torch.empty(64 << 20, dtype=torch.int8)
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < 5 or (time.perf_counter() < end and len(samples) < 1000):
        flush.zero_()
        begin = time.perf_counter()
        call()
        samples.append((time.perf_counter() - begin) * 1e6)
    return samples
