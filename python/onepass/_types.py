"""What the functions are made of: names for what they take, documentation that they share, and
their bodies."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from onepass import _native


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
# An array like the first argument; a tuple of them where an option asks for more.
Results: TypeAlias = Any

_LOGITS = """\
    The logits are z = softcap(x · scale) / temperature + mask, −inf where hidden:

    scale, temperature: a number, or an array with one a row (x's shape without the axis, or what
        broadcasts to it).
    softcap: cap · tanh(v / cap) for v = x · scale; 0: none.
    mask: a boolean or uint8 array that keeps where it is not zero, a floating one that is added, or
        a pair of both; broadcasts to x.
    lengths: int32 or int64, one a row: elements at or past it are hidden.
    causal: elements past the row's own position are hidden, the diagonal being aligned to the
        bottom right.
    window: (left, right), how far from its own position a row sees; −1: without end."""

_ATTENTION = """\
    q: batch × heads × queries × dim; k, v: batch × kv heads × keys × dim, one dtype (float32,
        float16 or bfloat16). kv heads divide heads; dim is a multiple of 8, up to 512. Any strides,
        but that of the last dimension is 1.
    layout: "bhsd" as above, or "bshd" with tokens before heads (q: batch × queries × heads × dim)
        for q, k, v and o, with offsets and in pages, too. It is a matter of strides; nothing is
        copied, and errors speak of "bhsd".

    The logits are z = softcap(q·k · scale) − alibi · |distance| + mask, −inf where hidden. A query
    that sees no key gives zeros and lse −inf.

    scale: of q·k; None: 1 / √dim. softcap: cap · tanh(v / cap) for v = q·k · scale; 0: none.
    mask: a boolean or uint8 array that keeps where it is not zero, a floating one that is added, or
        a pair of both; broadcasts to batch × heads × queries × keys (with offsets: all tokens of q,
        of k), in either layout.
    lengths: int32 or int64, one a batch: keys at or past it are hidden.
    causal: keys past the query's own are hidden; query q of Q stands at key q + length − Q.
    window: (left, right), how far from its own key a query sees; −1: without end.
    alibi: slopes, one a head, or batch × heads. sinks: one a head: a logit more, without a value.
    q_offsets, kv_offsets: sequences side by side: batch + 1 places, int32 or int64, from 0 up.
        Sequence b has tokens offsets[b] to offsets[b + 1] of a q, or a k and v, without a batch:
        heads × tokens × dim.
    pages: int32, batch × most pages of a sequence. k and v are then pages × kv heads × page size ×
        dim, key t of sequence b is token t mod page size of page pages[b][t / page size], and
        `lengths` says how many there are.
    check_pages: on a GPU, a page that is not there gives NaN to its queries; on a CPU it is always
        an error."""

_VARIANT = """\
    variant: the name of a variant to force; "": the dispatcher chooses (see `explain`)."""

_OUTPUT = f"""\
    dtype: of the result; None: x's. Where there is an `out`, its own counts. As in NumPy float and
        "float" are float64.
    out: an array to write into (x itself for in place), or a tuple with one, or None, for each
        result.
{_VARIANT}"""


def documented(function: F) -> F:
    """Fills in what all ops share. Since 3.13 the compiler takes a doc string's indentation away;
    here, so do we."""
    assert function.__doc__ is not None
    doc = inspect.cleandoc(function.__doc__)
    shared = {"logits": _LOGITS, "attention": _ATTENTION, "output": _OUTPUT, "variant": _VARIANT}
    for name, text in shared.items():
        doc = doc.replace(f"{{{name}}}", inspect.cleandoc(text))
    function.__doc__ = doc
    return function


# What PyTorch's functions take under another name, or not at all; a call that has it is told so.
_QKV = {"query": "is `q` here", "key": "is `k` here", "value": "is `v` here"}
_NOT_HERE = {
    "attention": _QKV
    | {
        "attn_mask": "is `mask` here",
        "is_causal": "is `causal` here, and aligns the diagonal to the bottom right, "
        "not to the top left",
        "enable_gqa": "is not needed: heads are grouped wherever k has fewer than q",
    },
    "cross_entropy": {
        "input": "is `x` here",
        "size_average": "is `reduction` here",
        "reduce": "is `reduction` here",
    },
}


def refuse_foreign(function: str, given: dict[str, Any]) -> None:
    """An error for arguments that a function of onepass.torch does not have."""
    for name in given:
        why = _NOT_HERE.get(function, {}).get(name)
        raise TypeError(
            f"{name}: {why}" if why else f"{function}() got an unexpected keyword argument '{name}'"
        )


def op(function: F) -> F:
    """The op of the extension that has this name and takes these parameters."""
    function.__dict__["not_here"] = _NOT_HERE.get(function.__name__, {})
    made: Any = functools.update_wrapper(_native.function(function), documented(function))
    return made
