"""What the functions share: names for their types, documentation, and the step that gives them
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
Number: TypeAlias = float | SupportsDLPack  # one for all rows, or an array with one per row
Integer: TypeAlias = int | SupportsDLPack
Mask: TypeAlias = SupportsDLPack | tuple[SupportsDLPack, SupportsDLPack] | None
Window: TypeAlias = tuple[int, int] | None
DTypeLike: TypeAlias = Any  # a dtype of any library, or a name: "float16", "f16"
Out: TypeAlias = Any  # an array, or a tuple with one array or None per result
# An array like the first argument; a tuple of them where an option asks for more.
Results: TypeAlias = Any

_LOGITS = """\
    The logits are z = softcap(x · scale) / temperature + mask, and −inf where hidden.

    scale, temperature: a number, or an array with one per row, which broadcasts to x's shape
        without the axis.
    softcap: cap · tanh(v / cap) for v = x · scale; 0: none.
    mask: a boolean or uint8 array that keeps elements where it is not zero, a floating one that is
        added, or a pair of both; broadcasts to x.
    lengths: int32 or int64, one per row: hides elements from this index on.
    causal: hides elements after the row's own position; the diagonal is aligned to the bottom
        right.
    window: (left, right): hides elements farther than this before and after the row's own position;
        −1: no limit."""

_ATTENTION = """\
    q: batch × heads × queries × dim; k, v: batch × kv heads × keys × dim, one dtype (float32,
        float16, bfloat16 or, on a CPU, float64). GQA: kv heads divides heads. dim is a multiple of
        8, up to 512; on a CPU v may have another than q and k. Any strides, except that the last
        dimension's is 1.
    layout: "bhsd" as above, or "bshd" with tokens before heads (q: batch × queries × heads × dim)
        for q, k, v and o, also with offsets and pages. Only strides differ: nothing is copied, and
        errors name shapes as in "bhsd".

    The logits are z = softcap(q·k · scale) − alibi · |distance| + mask, and −inf where hidden. A
    query that sees no key gives zeros and lse −inf.

    scale: of q·k; None: 1 / √dim. softcap: cap · tanh(v / cap) for v = q·k · scale; 0: none.
    mask: a boolean or uint8 array that keeps keys where it is not zero, a floating one that is
        added, or a pair of both; broadcasts to batch × heads × queries × keys (with offsets: all
        tokens of q, of k), in either layout.
    lengths: int32 or int64, one per sequence: hides keys from this index on.
    causal: hides keys after the query's own; query q of Q stands at key q + length − Q.
    window: (left, right): hides keys farther than this before and after the query's own; −1: no
        limit.
    alibi: slopes, one per head, or batch × heads.
    sinks: one more logit per head, without a value.
    q_offsets, kv_offsets: varlen (cu_seqlens): batch + 1 ascending positions from 0, int32 or
        int64. q, or k and v, are then heads × tokens × dim, and sequence b is tokens offsets[b] to
        offsets[b + 1] − 1.
    pages: paged KV, the block table: int32, batch × the most pages of any sequence. k and v are
        then pages × kv heads × page size × dim, key t of sequence b is token t mod page size of
        page pages[b][t / page size], and `lengths`, then required, counts the keys."""

_KEYS = """\
    check_pages: on a GPU, a query that sees keys of a page outside k gives NaN; on a CPU such a
        page is always an error.
    split: split-KV: keys per partition; 0: the dispatcher decides.
    dropout_p: 0. There is no dropout; another probability is an error.
    batch_invariant: a query's bits do not depend on the rest of the batch."""

_TOPK = """\
    target: one token per row, int32 or int64: adds its log-probability and its rank, how many
        tokens come before it.
    index_dtype: int32, or int64 (the default).
    return_lse: adds log Σ exp(z) of the whole row, before what `target` adds."""

_VARIANT = """\
    variant: the name of a variant to force; "": the dispatcher chooses (see `explain`)."""

_OUTPUT = f"""\
    dtype: of the result; None: x's. An array in `out` has its own. As in NumPy, float and "float"
        are float64.
    out: an array to write into (x itself for in place), or a tuple with an array or None for each
        result.
{_VARIANT}"""

_BATCH = """\
    batch_invariant: a row's bits do not depend on the number of rows."""

_SHARED = {
    "logits": _LOGITS,
    "attention": _ATTENTION,
    "keys": _KEYS,
    "topk": _TOPK,
    "output": _OUTPUT,
    "variant": _VARIANT,
    "batch_invariant": _BATCH,
}


def documented(function: F) -> F:
    """Fills in the shared parts of a doc string. Takes its indentation away, as the compiler does
    since Python 3.13."""
    assert function.__doc__ is not None
    doc = inspect.cleandoc(function.__doc__)
    for name, text in _SHARED.items():
        doc = doc.replace(f"{{{name}}}", inspect.cleandoc(text))
    function.__doc__ = doc
    return function


# Arguments of PyTorch's functions that have another name here, or none: the error of a call with
# one.
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
    """Raises an error for arguments that a function of onepass.torch does not have."""
    for name in given:
        why = _NOT_HERE.get(function, {}).get(name)
        raise TypeError(
            f"{name}: {why}" if why else f"{function}() got an unexpected keyword argument '{name}'"
        )


def op(function: F) -> F:
    """Gives a declared function the body that the extension has under its name."""
    function.__dict__["not_here"] = _NOT_HERE.get(function.__name__, {})
    made: Any = functools.update_wrapper(_native.function(function), documented(function))
    return made
