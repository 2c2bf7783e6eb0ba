"""Operators along an axis: softmax, log_softmax, logsumexp, and their gradients."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import onepass
from onepass.torch._schema import (
    LOGITS,
    SECOND,
    Logits,
    differentiable,
    either,
    operator,
    undifferentiable,
)

_COUNT = len(Logits._fields)
_TAIL = f"{LOGITS}, ScalarType? dtype, bool batch_invariant"


def _like(x: Tensor, dim: int, *rest: Any) -> Tensor:
    return x.new_empty(x.shape, dtype=rest[_COUNT] or x.dtype)


def _like_rows(x: Tensor, dim: int, *rest: Any) -> Tensor:
    shape = list(x.shape)
    if shape:
        del shape[dim]
    return x.new_empty(shape, dtype=rest[_COUNT] or x.dtype)


def _like_gradient(y: Tensor, dy: Tensor, x: Tensor | None, dim: int, *rest: Any) -> Tensor:
    return _like(y, dim, *rest)


def _forward(name: str, fake: Callable[..., Tensor]) -> Any:
    op = getattr(onepass, name)

    @operator(f"{name}(Tensor x, int dim, {_TAIL}) -> Tensor", fake)
    def function(x: Tensor, dim: int, *rest: Any) -> Tensor:
        logits, (dtype, batch_invariant) = Logits(*rest[:_COUNT]), rest[_COUNT:]
        return op(x, dim, dtype=dtype, batch_invariant=batch_invariant, **logits.options())

    return function


def _backward(name: str) -> Any:
    op = getattr(onepass, name)

    @operator(f"{name}(Tensor y, Tensor dy, Tensor? x, int dim, {_TAIL}) -> Tensor", _like_gradient)
    def function(y: Tensor, dy: Tensor, x: Tensor | None, dim: int, *rest: Any) -> Tensor:
        logits, (dtype, batch_invariant) = Logits(*rest[:_COUNT]), rest[_COUNT:]
        return op(y, dy, dim, x=x, dtype=dtype, batch_invariant=batch_invariant, **logits.options())

    return function


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor, keeps_x: bool = False) -> None:
    x, dim, *rest = inputs
    logits = Logits(*rest[:_COUNT])
    logits.check_constant()
    # The backward reads x for the slope of a softcap, and for logsumexp, whose output is one value
    # per row.
    keeps_x = keeps_x or logits.softcap > 0
    ctx.save_for_backward(x if keeps_x else None, output, *logits.tensors())
    ctx.dim, ctx.dtype, ctx.logits, ctx.batch_invariant = (
        dim,
        x.dtype,
        logits.without_tensors(),
        rest[-1],
    )


def _recall(ctx: Any) -> tuple[Tensor | None, Tensor, Logits]:
    x, y, *tensors = ctx.saved_tensors
    return x, y, ctx.logits.with_tensors(tensors)


def _with_gradient(name: str) -> Any:
    backward = undifferentiable(_backward(f"{name}_backward"), SECOND)

    def gradient(ctx: Any, dy: Tensor) -> tuple[Tensor]:
        x, y, logits = _recall(ctx)
        return (backward(y, dy, x, ctx.dim, *logits, ctx.dtype, ctx.batch_invariant),)

    return differentiable(_forward(name, _like), _remember, gradient)


def _logsumexp_gradient(ctx: Any, dy: Tensor) -> tuple[Tensor]:
    """dlse / dx = softmax(x) · dz / dx."""
    x, _, logits = _recall(ctx)
    assert x is not None
    weights = softmax(x, ctx.dim, *logits, None, ctx.batch_invariant)
    scale = either(logits.scale, logits.scale_rows)
    rows = dy * scale / either(logits.temperature, logits.temperature_rows)

    def along(value: Tensor) -> Tensor:
        # A scalar is a row without a dimension.
        return value.unsqueeze(ctx.dim) if x.dim() > 0 else value

    dx = weights * along(rows)
    if logits.softcap > 0:
        each = along(scale.expand(dy.shape)) if isinstance(scale, Tensor) else scale
        dx = dx * (1 - torch.tanh(x * each / logits.softcap).square())
    return (dx.to(ctx.dtype),)


softmax = _with_gradient("softmax")
log_softmax = _with_gradient("log_softmax")
logsumexp = differentiable(
    _forward("logsumexp", _like_rows),
    functools.partial(_remember, keeps_x=True),
    _logsumexp_gradient,
)
