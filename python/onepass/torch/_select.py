"""The operators of top-k, sampling and MoE routing. Their results have no gradient."""

from typing import Any

from torch import Tensor

import onepass
from onepass.torch._schema import (
    LOGITS,
    Logits,
    either,
    operator,
    undifferentiable,
    without_gradient,
)

_COUNT = len(Logits._fields)
_DTYPES = "ScalarType? dtype, ScalarType index_dtype"

# The filters of sample: one value for all rows, or a tensor with one per row.
_FILTERS = {
    "top_k": "SymInt",
    "top_p": "float",
    "min_p": "float",
    "seed": "SymInt",
    "offset": "SymInt",
}


def _few(x: Tensor, k: int, dtype: Any, index_dtype: Any) -> tuple[Tensor, Tensor]:
    shape = [*x.shape[:-1], k]
    return x.new_empty(shape, dtype=dtype or x.dtype), x.new_empty(shape, dtype=index_dtype)


def _like_topk(x: Tensor, k: int, *rest: Any) -> tuple[Tensor, Tensor]:
    return _few(x, k, *rest[-2:])


def _like_sample(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=rest[-1])


@operator(
    f"softmax_topk(Tensor x, SymInt k, str values, bool sorted, {LOGITS}, {_DTYPES})"
    " -> (Tensor, Tensor)",
    _like_topk,
)
def softmax_topk(x: Tensor, k: int, values: str, sorted: bool, *rest: Any) -> tuple[Tensor, ...]:
    logits, (dtype, index_dtype) = Logits(*rest[:_COUNT]), rest[_COUNT:]
    return onepass.softmax_topk(
        x, k, values=values, sorted=sorted, dtype=dtype, index_dtype=index_dtype, **logits.options()
    )


@operator(
    "sample(Tensor x, "
    + ", ".join(f"{kind} {name}, Tensor? {name}_rows" for name, kind in _FILTERS.items())
    + f", {LOGITS}, ScalarType index_dtype) -> Tensor",
    _like_sample,
)
def sample(x: Tensor, *rest: Any) -> Tensor:
    pairs = zip(_FILTERS, rest[0::2], rest[1::2])
    filters = {name: either(value, rows) for name, value, rows in pairs}
    rest = rest[2 * len(_FILTERS) :]
    return onepass.sample(x, index_dtype=rest[-1], **filters, **Logits(*rest[:_COUNT]).options())


@operator(
    f"gate(Tensor scores, SymInt k, str score, Tensor? bias, bool renormalize, float scale, "
    f"{_DTYPES}) -> (Tensor, Tensor)",
    _like_topk,
)
def gate(
    scores: Tensor,
    k: int,
    score: str,
    bias: Tensor | None,
    renormalize: bool,
    scale: float,
    *rest: Any,
) -> tuple[Tensor, Tensor]:
    dtype, index_dtype = rest
    return onepass.gate(
        scores,
        k,
        score=score,
        bias=bias,
        renormalize=renormalize,
        scale=scale,
        dtype=dtype,
        index_dtype=index_dtype,
    )


undifferentiable(softmax_topk, "pass the detached tensor, and gather what was chosen")
undifferentiable(gate, "pass the detached tensor, and gather what was chosen")
without_gradient(sample)
