"""Softmax, its kin and the losses beside float64, their options in all combinations, over shapes,
dtypes and layouts in memory."""

import hypothesis.strategies as st
import numpy as np
import pytest
import reference
from hypothesis import given
from properties import (
    DTYPES,
    Bounds,
    f64,
    finite,
    given_as,
    laid_out,
    numbers,
    own_out,
    parts_of,
    row_call,
    slope,
    tried,
)

import onepass

pytestmark = pytest.mark.filterwarnings(
    "ignore:overflow encountered", "ignore:invalid value encountered"
)


@tried
@given(st.data())
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_forward(name, data):
    draw = data.draw
    x, axis, options = row_call(draw, least_scale=-2)
    bounds = Bounds(name, x, axis, options)
    out_dtype = draw(st.sampled_from([None, *DTYPES]))
    out = own_out(draw, bounds.lse.shape if name == "logsumexp" else x.shape, out_dtype or x.dtype)
    more = {"dtype": out_dtype, "batch_invariant": draw(st.booleans())}
    if name == "logsumexp":
        y = onepass.logsumexp(x, given_as(draw, axis, x), out=out, **options, **more)
        return bounds.close(y, bounds.lse, bounds.lse_error)
    before = x.copy()
    in_place = out is None and out_dtype is None and draw(st.booleans())
    y, lse = getattr(onepass, name)(
        x,
        given_as(draw, axis, x),
        return_lse=True,
        out=(x if in_place else out, None),
        **options,
        **more,
    )
    assert in_place or (f64(x) == f64(before)).all(), "the input was written"
    assert y is (x if in_place else y if out is None else out)
    bounds.close(lse, bounds.lse, bounds.lse_error, "lse")
    y = np.moveaxis(y, axis, -1)
    if name == "softmax":
        return bounds.close(y, bounds.p, bounds.weight_error * bounds.p)
    bounds.close(y, bounds.log, bounds.weight_error + bounds.ulps * finite(bounds.log))


def hidden_in(x, axis, options):
    """What a mask other than an additive one takes away."""
    keeps = parts_of(options.get("mask"), "bu")
    rest = {name: options[name] for name in ("lengths", "causal", "window") if name in options}
    return np.isneginf(reference.logits(np.zeros(x.shape), axis, mask=keeps, **rest))


@tried
@given(st.data())
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_backward(name, data):
    draw = data.draw
    x, axis, options = row_call(draw)
    y = getattr(onepass, name)(x, axis, **options)
    dy = draw(
        laid_out(
            numbers(
                draw, x.shape, draw(st.sampled_from([x.dtype, np.dtype(np.float32)])), spread=1.0
            )
        )
    )
    keep = ~hidden_in(x, axis, options)
    rows, dz = (np.where(keep, np.moveaxis(f64(array), axis, -1), 0) for array in (y, dy))
    log = name == "log_softmax"
    weights = np.exp(rows) if log else rows
    terms = dz if log else rows * dz
    gradient = (
        dz - weights * terms.sum(-1, keepdims=True)
        if log
        else rows * (dz - terms.sum(-1, keepdims=True))
    )
    factor = slope(x, axis, options)
    total = np.abs(terms).sum(-1, keepdims=True)
    size = (
        finite(dz) + weights * (1 + finite(rows)) * total
        if log
        else np.abs(rows) * (finite(dz) + total)
    )
    bounds = Bounds(f"{name}_backward", x, axis, options)
    rows_factor = np.abs(
        slope(x, axis, {key: value for key, value in options.items() if key != "softcap"})
    )
    error = bounds.ulps * rows_factor * size * (4 if "softcap" in options else 1)
    dx = getattr(onepass, f"{name}_backward")(
        y,
        dy,
        given_as(draw, axis, x),
        x=x if "softcap" in options else None,
        out=own_out(draw, x.shape, x.dtype),
        **options,
    )
    bounds.close(
        np.moveaxis(dx, axis, -1), np.where(keep, gradient * factor, 0), np.where(keep, error, 0)
    )


@tried
@given(st.data())
def test_losses(data):
    draw = data.draw
    x, axis, options = row_call(draw)
    bounds = Bounds("cross_entropy", x, axis, options)
    z, lse, classes = bounds.z, bounds.lse, bounds.z.shape[-1]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    target = rng.integers(0, max(classes, 1), lse.shape)
    target[rng.random(lse.shape) < (0.3 if classes else 1)] = -100
    smoothing = draw(st.sampled_from([0.0, 0.0, 0.1, 0.7]))
    z_loss = draw(st.sampled_from([0.0, 0.0, 0.01]))
    reduction = draw(st.sampled_from(["none", "sum", "mean"]))
    given_target = draw(laid_out(target.astype(draw(st.sampled_from([np.int32, np.int64])))))
    more = {"label_smoothing": smoothing, "z_loss": z_loss, "reduction": reduction} | options
    count = max((target != -100).sum(), 1) if reduction == "mean" else 1

    # Each row's loss, as a sum of log-probabilities: where the target or all is
    # hidden it is infinite.
    counts = target != -100
    at = np.where(counts, target, 0)[..., None]
    log = bounds.log
    live = ~np.isneginf(z)
    own = -np.take_along_axis(log, at, -1)[..., 0] if classes else np.full(lse.shape, np.inf)
    mean = -np.where(live, log, 0).sum(-1) / np.maximum(live.sum(-1), 1)
    losses = ((1 - smoothing) * own if smoothing < 1 else 0) + smoothing * mean
    losses = losses + z_loss * np.where(np.isfinite(lse), lse, 0) ** 2
    losses = np.where(counts, np.where(np.isneginf(lse), np.inf, losses), 0)
    target_error = np.take_along_axis(bounds.logit_error, at, -1)[..., 0] if classes else 0
    spread = finite(z).max(-1, initial=0) if smoothing else 0
    if smoothing:
        target_error = np.maximum(target_error, bounds.logit_error.max(-1, initial=0))
    error = (
        target_error
        + bounds.lse_error * (1 + 2 * z_loss * finite(lse))
        + bounds.ulps * (finite(losses) + spread)
    )
    error = np.where(counts, error, 0)

    loss, dx, told = onepass.cross_entropy_with_gradient(
        x, given_target, axis, return_lse=True, **more
    )
    bounds.close(told, lse, bounds.lse_error, "lse")
    if reduction == "none":
        bounds.close(loss, losses, error, "loss")
    else:
        summed = bounds.unit * finite(losses).sum() * 2
        bounds.close(loss, losses.sum() / count, (error.sum() + summed) / count, "reduced loss")
    alone = onepass.cross_entropy(x, given_target, given_as(draw, axis, x), **more)
    bounds.close(
        alone,
        f64(loss),
        (2 * error.sum() + 4 * bounds.unit * finite(losses).sum()) / count,
        "loss alone",
    )

    # The gradient: of the loss just taken, and of another one, from the lse and without it.
    back = Bounds("cross_entropy_backward", x, axis, options)
    dloss = numbers(draw, () if reduction != "none" else lse.shape, np.float32, spread=1.0)
    hit = (np.arange(classes) == target[..., None]) & counts[..., None]
    here = live & counts[..., None]
    other = 1 + 2 * z_loss * np.where(np.isfinite(lse), lse, 0)[..., None]
    gradient = (
        bounds.p * other
        - (1 - smoothing) * hit
        - smoothing / np.maximum(live.sum(-1, keepdims=True), 1)
    )
    factor = slope(x, axis, options)
    plain = np.abs(
        slope(x, axis, {key: value for key, value in options.items() if key != "softcap"})
    )

    def check(dx, weight, what, lse_given=False):
        weight = np.broadcast_to(f64(weight) / count, lse.shape)[..., None]
        expected = np.where(here, gradient * factor * weight, 0)
        off = back.weight_error + back.ulps + back.logit_error
        off = off + (back.unit * finite(lse)[..., None] if lse_given else 0)
        size = bounds.p * np.abs(1 + 2 * z_loss * finite(lse)[..., None])
        # A weight may be 0.
        size = np.maximum(size * off, back.smallest * (1 + 2 * z_loss * finite(lse)[..., None]))
        error = plain * np.abs(weight) * (size + back.ulps * np.where(hit, 1, smoothing))
        error = error * (4 if "softcap" in options else 1) + back.ulps * 4 * finite(expected)
        back.close(np.moveaxis(dx, axis, -1), expected, np.where(here, error, 0), what)

    check(dx, 1.0, "gradient beside the loss")
    backward = onepass.cross_entropy_backward
    check(
        backward(x, given_target, dloss, told, axis, **more),
        dloss,
        "gradient by the lse",
        lse_given=True,
    )
    check(backward(x, given_target, dloss, None, axis, **more), dloss, "gradient")
