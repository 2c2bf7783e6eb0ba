"""The operator cross_entropy. It keeps the lse, so that its gradient reads the logits once."""

from typing import Any

import torch
from torch import Tensor

import onepass
from onepass.torch._schema import (
    LOGITS,
    SECOND,
    Logits,
    check_constant,
    differentiable,
    operator,
    undifferentiable,
)

_COUNT = len(Logits._fields)
_TAIL = (
    f"{LOGITS}, Tensor? weight, SymInt ignore_index, float label_smoothing, float z_loss, "
    "str reduction, ScalarType? dtype, bool batch_invariant"
)


def _options(rest: tuple[Any, ...]) -> dict[str, Any]:
    names = (
        "weight",
        "ignore_index",
        "label_smoothing",
        "z_loss",
        "reduction",
        "dtype",
        "batch_invariant",
    )
    return Logits(*rest[:_COUNT]).options() | dict(zip(names, rest[_COUNT:]))


def _like_losses(x: Tensor, target: Tensor, dim: int, *rest: Any) -> tuple[Tensor, Tensor]:
    options = _options(rest)
    rows = list(x.shape)
    del rows[dim]
    loss = x.new_empty(
        rows if options["reduction"] == "none" else [], dtype=options["dtype"] or x.dtype
    )
    return loss, x.new_empty(
        rows, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32
    )


def _like_logits(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


@operator(
    f"cross_entropy(Tensor x, Tensor target, int dim, {_TAIL}) -> (Tensor, Tensor)", _like_losses
)
def _cross_entropy(x: Tensor, target: Tensor, dim: int, *rest: Any) -> tuple[Tensor, Tensor]:
    return onepass.cross_entropy(x, target, dim, return_lse=True, **_options(rest))


@operator(
    f"cross_entropy_backward(Tensor x, Tensor target, Tensor dloss, Tensor? lse, int dim, {_TAIL})"
    " -> Tensor",
    _like_logits,
)
def _cross_entropy_backward(
    x: Tensor, target: Tensor, dloss: Tensor, lse: Tensor | None, dim: int, *rest: Any
) -> Tensor:
    options = _options(rest) | {"dtype": None}
    return onepass.cross_entropy_backward(x, target, dloss, lse, dim, **options)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, target, dim, *rest = inputs
    logits, weight = Logits(*rest[:_COUNT]), rest[_COUNT]
    logits.check_constant()
    check_constant(target=target, weight=weight)
    lse = output[1]
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, target, lse, weight, *logits.tensors())
    ctx.dim, ctx.logits, ctx.rest = dim, logits.without_tensors(), rest[_COUNT + 1 :]


def _gradient(ctx: Any, dloss: Tensor | None, _: Tensor | None) -> tuple[Tensor | None]:
    if dloss is None:
        return (None,)
    x, target, lse, weight, *tensors = ctx.saved_tensors
    logits = ctx.logits.with_tensors(tensors)
    return (cross_entropy_backward(x, target, dloss, lse, ctx.dim, *logits, weight, *ctx.rest),)


cross_entropy = differentiable(_cross_entropy, _remember, _gradient)
cross_entropy_backward = undifferentiable(_cross_entropy_backward, SECOND)
