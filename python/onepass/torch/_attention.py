"""The operators of attention and of the merge of its results, with their gradients."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

import onepass
from onepass.torch._schema import (
    MASK,
    SECOND,
    differentiable,
    mask_options,
    operator,
    undifferentiable,
)

_KEYS = (
    f"float? scale, float softcap, {MASK}, Tensor? alibi, Tensor? sinks, Tensor? q_offsets, "
    "Tensor? kv_offsets"
)
_REST = "Tensor? pages, bool check_pages, SymInt split, str layout, ScalarType? dtype, "


class _Keys(NamedTuple):
    """The arguments of _KEYS: what makes the logits z of q · k, and which keys there are."""

    scale: float | None
    softcap: float
    boolean: Tensor | None
    additive: Tensor | None
    lengths: Tensor | None
    causal: bool
    window_left: int
    window_right: int
    alibi: Tensor | None
    sinks: Tensor | None
    q_offsets: Tensor | None
    kv_offsets: Tensor | None

    def options(self) -> dict[str, Any]:
        """Converts to the arguments of the functions of `onepass`."""
        return {
            "scale": self.scale,
            "softcap": self.softcap,
            **mask_options(*self[2:8]),
            "alibi": self.alibi,
            "sinks": self.sinks,
            "q_offsets": self.q_offsets,
            "kv_offsets": self.kv_offsets,
        }


_COUNT = len(_Keys._fields)
# The arguments of attention that have gradients: q, k, v, additive and sinks.
_PLACES = (0, 1, 2, 3 + _Keys._fields.index("additive"), 3 + _Keys._fields.index("sinks"))


def _like(
    q: Tensor, dim: int, layout: str, dtype: torch.dtype | None, lse_dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """o, and the lse, which has heads before tokens in either layout."""
    rows = list(q.shape[:-1])
    o = q.new_empty([*rows, dim], dtype=dtype or q.dtype)
    if layout == "bshd":
        rows[-2:] = rows[:-3:-1]
    return o, q.new_empty(rows, dtype=lse_dtype)


def _like_attention(q: Tensor, k: Tensor, v: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    layout, dtype, _ = arguments[-3:]
    lse_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return _like(q, v.shape[-1], layout, dtype, lse_dtype)


def _like_gradients(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, d_o: Tensor, d_lse: Any, *rest: Any
) -> list[Tensor]:
    keys, (_, d_sinks, d_mask) = _Keys(*rest[:_COUNT]), rest[_COUNT:]
    extra = [of for of, wanted in ((keys.sinks, d_sinks), (keys.additive, d_mask)) if wanted]
    return [of.new_empty(of.shape) for of in (q, k, v, *extra)]


def _like_merged(
    a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor, layout: str, dtype: Any
) -> tuple[Tensor, Tensor]:
    return _like(a, a.shape[-1], layout, dtype, lse_a.dtype)


def _like_merge_gradients(
    a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    return tuple(of.new_empty(of.shape) for of in (a, lse_a, b, lse_b))


def _dense_last(gradient: Tensor) -> Tensor:
    """Autograd expands the gradient of a sum: the last dimension may have stride 0."""
    return gradient if gradient.stride(-1) == 1 else gradient.contiguous()


@operator(
    f"attention(Tensor q, Tensor k, Tensor v, {_KEYS}, {_REST}bool batch_invariant)"
    " -> (Tensor, Tensor)",
    _like_attention,
)
def _attention(q: Tensor, k: Tensor, v: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    pages, check_pages, split, layout, dtype, batch_invariant = arguments[_COUNT:]
    return onepass.attention(
        q,
        k,
        v,
        pages=pages,
        check_pages=check_pages,
        split=split,
        layout=layout,
        dtype=dtype,
        return_lse=True,
        batch_invariant=batch_invariant,
        **_Keys(*arguments[:_COUNT]).options(),
    )


@operator(
    "attention_backward(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor d_o, "
    f"Tensor? d_lse, {_KEYS}, str layout, bool d_sinks, bool d_mask) -> Tensor[]",
    _like_gradients,
)
def _attention_backward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, d_o: Tensor, d_lse: Any, *rest: Any
) -> list[Tensor]:
    layout, d_sinks, d_mask = rest[_COUNT:]
    gradients = onepass.attention_backward(
        q,
        k,
        v,
        o,
        lse,
        _dense_last(d_o),
        d_lse,
        return_d_sinks=d_sinks,
        return_d_mask=d_mask,
        layout=layout,
        **_Keys(*rest[:_COUNT]).options(),
    )
    return list(gradients)


@operator(
    "merge_attention(Tensor a, Tensor lse_a, Tensor b, Tensor lse_b, str layout, ScalarType? dtype)"
    " -> (Tensor, Tensor)",
    _like_merged,
)
def _merge_attention(
    a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor, layout: str, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    return onepass.merge_attention(a, lse_a, b, lse_b, layout=layout, dtype=dtype)


@operator(
    "merge_attention_backward(Tensor a, Tensor lse_a, Tensor b, Tensor lse_b, Tensor d_o, "
    "Tensor? d_lse, str layout) -> (Tensor, Tensor, Tensor, Tensor)",
    _like_merge_gradients,
)
def _merge_attention_backward(
    a: Tensor,
    lse_a: Tensor,
    b: Tensor,
    lse_b: Tensor,
    d_o: Tensor,
    d_lse: Tensor | None,
    layout: str,
) -> tuple[Tensor, ...]:
    return onepass.merge_attention_backward(a, lse_a, b, lse_b, d_o, d_lse, layout=layout)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *arguments = inputs
    keys, (pages, _, _, layout, *_) = _Keys(*arguments[:_COUNT]), arguments[_COUNT:]
    if pages is not None:
        raise NotImplementedError(
            "pages: keys in pages have no gradient; pass k and v without pages"
        )
    if keys.alibi is not None and keys.alibi.requires_grad:
        raise NotImplementedError("alibi: requires grad, but the slopes have no gradient")
    ctx.set_materialize_grads(False)
    # Autograd keeps tensors apart from the other arguments.
    ctx.save_for_backward(q, k, v, *output, *keys[2:5], *keys[8:])
    ctx.constants = keys[:2], keys[5:8], layout


def _gradients(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    if d_o is None and d_lse is None:
        return (None,) * len(_PLACES)
    q, k, v, o, lse, *tensors = ctx.saved_tensors
    numbers, more, layout = ctx.constants
    keys = (*numbers, *tensors[:3], *more, *tensors[3:])
    needs_mask, needs_sinks = ctx.needs_input_grad[-2:]
    d_o = torch.zeros_like(o) if d_o is None else d_o
    d_q, d_k, d_v, *extra = attention_backward(
        q, k, v, o, lse, d_o, d_lse, *keys, layout, needs_sinks, needs_mask
    )
    d_sinks = extra[0] if needs_sinks else None
    return d_q, d_k, d_v, extra[-1] if needs_mask else None, d_sinks


def _remember_merge(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.layout, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _merge_gradients(
    ctx: Any, d_o: Tensor | None, d_lse: Tensor | None
) -> tuple[Tensor | None, ...]:
    if d_o is None and d_lse is None:
        return (None,) * 4
    a, lse_a, b, lse_b = ctx.saved_tensors
    d_o = torch.zeros_like(a) if d_o is None else d_o
    return merge_attention_backward(a, lse_a, b, lse_b, d_o, d_lse, ctx.layout)


attention_backward = undifferentiable(_attention_backward, SECOND)
attention = differentiable(_attention, _remember, _gradients, _PLACES)
merge_attention_backward = undifferentiable(_merge_attention_backward, SECOND)
merge_attention = differentiable(_merge_attention, _remember_merge, _merge_gradients, range(4))
