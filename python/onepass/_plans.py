"""What the dispatcher decides, and how many threads ops may use."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onepass import _native

has_cuda: bool = _native.has_cuda  # whether this build has GPU parts


@dataclass(frozen=True)
class Explanation:
    """What a call would do, and why. Made to be printed."""

    variant: str
    plan: str  # the variant and how it is launched
    reasons: tuple[str, ...]  # one sentence per decision
    least_bytes: float  # each input element read once, each output element written once
    planned_bytes: float  # what the plan moves

    def __str__(self) -> str:
        times = self.planned_bytes / self.least_bytes if self.least_bytes else 1.0
        because = "".join(f"\n  because  {reason}" for reason in self.reasons)
        return (
            f"plan     {self.plan}{because}\n"
            f"bytes    {self.planned_bytes:.0f} moved, "
            f"{self.least_bytes:.0f} at least: {times:.2f}x"
        )


def explain(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Explains what `op(*args, **kwargs)` would do. Checks the arguments and computes nothing.

    Example:
        >>> onepass.explain(onepass.softmax, np.zeros((4, 8), np.float32)).variant
        'cpu_short'
    """
    told = _native.explain(op, *args, **kwargs)
    return Explanation(
        told.variant, told.plan, tuple(told.reasons), told.least_bytes, told.planned_bytes
    )


def set_num_threads(threads: int) -> None:
    """Sets how many threads an op on a CPU may use from now on; 0: one per core.

    Example:
        >>> onepass.set_num_threads(2)
        >>> onepass.get_num_threads()
        2
    """
    _native.set_num_threads(threads)


def get_num_threads() -> int:
    """The last argument of `set_num_threads`; 0 at first.

    Example:
        >>> onepass.set_num_threads(0)
        >>> onepass.get_num_threads()
        0
    """
    return _native.get_num_threads()
