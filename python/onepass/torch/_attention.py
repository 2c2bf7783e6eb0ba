"""The operators of attention. They compute forward only."""

from typing import Any

import torch
from torch import Tensor

import onepass
from onepass.torch._schema import MASK, mask_options, operator, undifferentiable

_MASK_COUNT = MASK.count(",") + 1
_REST = {
    "alibi": "Tensor?",
    "sinks": "Tensor?",
    "q_offsets": "Tensor?",
    "kv_offsets": "Tensor?",
    "pages": "Tensor?",
    "check_pages": "bool",
    "split": "SymInt",
    "layout": "str",
    "dtype": "ScalarType?",
    "batch_invariant": "bool",
}
_FORWARD_ONLY = (
    "it computes forward only. Call it under torch.no_grad() or with detached tensors, or train "
    "with torch.nn.functional.scaled_dot_product_attention"
)


def _like(
    q: Tensor, layout: str, dtype: torch.dtype | None, lse_dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """o, and the lse, which has heads before tokens in either layout."""
    rows = list(q.shape[:-1])
    if layout == "bshd":
        rows[-2:] = rows[:-3:-1]
    return q.new_empty(q.shape, dtype=dtype or q.dtype), q.new_empty(rows, dtype=lse_dtype)


def _like_attention(q: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    layout, dtype, _ = arguments[-3:]
    return _like(q, layout, dtype, torch.float32)


def _like_merged(
    a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor, layout: str, dtype: Any
) -> tuple[Tensor, Tensor]:
    return _like(a, layout, dtype, lse_a.dtype)


@operator(
    f"attention(Tensor q, Tensor k, Tensor v, float? scale, float softcap, {MASK}, "
    + ", ".join(f"{kind} {name}" for name, kind in _REST.items())
    + ") -> (Tensor, Tensor)",
    _like_attention,
)
def attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, softcap: float, *arguments: Any
) -> tuple[Tensor, Tensor]:
    mask, rest = mask_options(*arguments[:_MASK_COUNT]), dict(zip(_REST, arguments[_MASK_COUNT:]))
    return onepass.attention(q, k, v, scale=scale, softcap=softcap, return_lse=True, **mask, **rest)


@operator(
    "merge_attention(Tensor a, Tensor lse_a, Tensor b, Tensor lse_b, str layout, ScalarType? dtype)"
    " -> (Tensor, Tensor)",
    _like_merged,
)
def merge_attention(
    a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor, layout: str, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    return onepass.merge_attention(a, lse_a, b, lse_b, layout=layout, dtype=dtype)


undifferentiable(attention, _FORWARD_ONLY)
undifferentiable(merge_attention, _FORWARD_ONLY)
