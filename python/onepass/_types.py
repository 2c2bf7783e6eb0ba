"""Names for what the functions take, and the parts of their documentation that they share."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar


class SupportsDLPack(Protocol):
    """An array of any library that speaks DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, int]: ...


A = TypeVar("A", bound=SupportsDLPack)
F = TypeVar("F", bound=Callable[..., Any])

Array: TypeAlias = SupportsDLPack
Number: TypeAlias = float | SupportsDLPack  # one for all rows, or an array with one a row
Integer: TypeAlias = int | SupportsDLPack
Mask: TypeAlias = SupportsDLPack | tuple[SupportsDLPack, SupportsDLPack] | None
Window: TypeAlias = tuple[int, int] | None
DTypeLike: TypeAlias = Any  # a dtype of any library's, or a name: "float16", "f16"
Out: TypeAlias = Any  # an array, or a tuple with one (or None) a result
Results: TypeAlias = Any  # an array like the first argument; a tuple of them where an option asks for more

_LOGITS = """\
    The logits are z = softcap(x · scale) / temperature + mask, −inf where hidden:

    scale, temperature: a number, or an array with one a row (x's shape without the axis, or what broadcasts to it).
    softcap: cap · tanh(v / cap) for v = x · scale; 0: none.
    mask: a boolean or uint8 array that keeps where it is not zero, a floating one that is added, or a pair of
        both; broadcasts to x.
    lengths: int32 or int64, one a row: elements at or past it are hidden.
    causal: elements past the row's own position are hidden, the diagonal being aligned to the bottom right.
    window: (left, right), how far from its own position a row sees; −1: without end."""

_OUTPUT = """\
    dtype: of the result; None: x's. Where there is an `out`, its own counts.
    out: an array to write into (x itself for in place), or a tuple with one, or None, for each result.
    variant: the name of a variant to force; "": the dispatcher chooses (see `explain`)."""


def documented(function: F) -> F:
    """Fills in what all ops share."""
    assert function.__doc__ is not None
    function.__doc__ = function.__doc__.replace("    {logits}", _LOGITS).replace("    {output}", _OUTPUT)
    return function
