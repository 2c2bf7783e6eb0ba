"""Every op beside float64, its options in all combinations, over shapes, dtypes and
layouts in memory."""

import hypothesis.strategies as st
import numpy as np
import pytest
import reference
from hypothesis import given
from properties import (
    DTYPES,
    ULPS,
    Bounds,
    a_row,
    f64,
    finite,
    laid_out,
    logit_options,
    masks,
    numbers,
    parts_of,
    shapes,
    sides,
    slope,
    some,
    tried,
)

import onepass

pytestmark = pytest.mark.filterwarnings(
    "ignore:overflow encountered", "ignore:invalid value encountered"
)


def row_call(draw, last=False, **options):
    """x, an axis of it, and options."""
    shape = draw(shapes())
    axis = len(shape) - 1 if last else draw(st.integers(0, len(shape) - 1))
    x = draw(laid_out(numbers(draw, shape, draw(st.sampled_from(DTYPES)))))
    return x, axis, draw(logit_options(shape, axis, **options))


def given_as(draw, axis, x):
    return axis - x.ndim if draw(st.booleans()) else axis


def own_out(draw, shape, dtype):
    """Somewhere to write to, in any layout; None: the op's own."""
    return draw(laid_out(np.full(shape, 7, dtype))) if draw(st.booleans()) else None


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


@tried
@given(st.data())
def test_topk(data):
    draw = data.draw
    x, _, options = row_call(draw, last=True)
    bounds = Bounds("topk", x, x.ndim - 1, options)
    z, lse = bounds.z, bounds.lse
    if z.shape[-1] == 0:
        return
    k = draw(st.integers(1, min(z.shape[-1], 40)))
    kind = draw(st.sampled_from(["probability", "log_probability", "logit", "renormalized"]))
    in_order = draw(st.booleans())
    target = np.random.default_rng(draw(st.integers(0, 99))).integers(0, z.shape[-1], lse.shape)
    values, indices, told, logprob, rank = onepass.softmax_topk(
        x, k, values=kind, sorted=in_order, target=target, return_lse=True, **options
    )
    bounds.close(told, lse, bounds.lse_error, "lse")
    assert indices.shape == (*lse.shape, k) and ((indices >= 0) & (indices < z.shape[-1])).all()
    assert (np.diff(np.sort(indices, -1), axis=-1) > 0).all(), "chosen twice"
    best = np.argsort(-z, axis=-1, kind="stable")[..., :k]
    take = lambda of, at: np.take_along_axis(of, at, -1)  # noqa: E731
    exact = not {"scale", "temperature", "softcap", "mask"} & set(options)
    if exact:
        np.testing.assert_array_equal(indices, best if in_order else np.sort(best, -1))
    near = 16 * (
        take(bounds.logit_error, indices) + take(bounds.logit_error, best)
    ) + bounds.ulps * finite(take(z, best))
    mine = (
        indices
        if in_order
        else take(indices, np.argsort(-take(z, indices), axis=-1, kind="stable"))
    )
    with np.errstate(invalid="ignore"):
        apart = np.where(take(z, mine) == take(z, best), 0, np.abs(take(z, mine) - take(z, best)))
    assert (apart <= near + SMALL).all(), "an element that is not among the largest"

    log = bounds.log
    weight_error = take(bounds.weight_error, indices)
    p = take(bounds.p, indices)
    expected, error = {
        "probability": (p, weight_error * p),
        "log_probability": (
            take(log, indices),
            weight_error + bounds.ulps * finite(take(log, indices)),
        ),
        "logit": (
            take(z, indices),
            take(bounds.logit_error, indices) + bounds.ulps * finite(take(z, indices)),
        ),
        "renormalized": (
            p / np.maximum(p.sum(-1, keepdims=True), 1e-300),
            4 * (weight_error + bounds.ulps),
        ),
    }[kind]
    bounds.close(values, expected, error, kind)
    if kind == "renormalized":
        total = f64(values).sum(-1)
        assert ((total == 0) | (np.abs(total - 1) < k * 2.0**-8)).all()
    own = take(log, target[..., None])[..., 0]
    bounds.close(
        logprob,
        own,
        take(bounds.weight_error, target[..., None])[..., 0] + bounds.ulps * finite(own),
        "logprob",
    )
    if exact:
        before = (z > take(z, target[..., None])).sum(-1)
        ties = (
            (z == take(z, target[..., None])) & (np.arange(z.shape[-1]) < target[..., None])
        ).sum(-1)
        np.testing.assert_array_equal(rank, before + ties)


SMALL = 1e-30


@tried
@given(st.data())
def test_sample(data):
    """What no draw may do; that draws are spread as the probabilities is test_choices.py's."""
    draw = data.draw
    x, _, options = row_call(draw, last=True)
    bounds = Bounds("topk", x, x.ndim - 1, options)
    z, lse, p = bounds.z, bounds.lse, bounds.p
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    filters = some(
        draw,
        {
            "top_k": lambda: draw(st.sampled_from([0, 1, 3, 50])),
            "top_p": lambda: a_row(draw, lse.shape, 0.1, 1.0),
            "min_p": lambda: a_row(draw, lse.shape, 0.0, 0.9),
            "seed": lambda: draw(
                st.one_of(
                    st.integers(-(2**63), 2**64 - 1), st.just(rng.integers(0, 2**63, lse.shape))
                )
            ),
            "offset": lambda: draw(st.integers(-(2**63), 2**64 - 1)),
        },
    )
    one = draw(st.booleans())
    if one:
        options["temperature"] = 0.0
        without = {name: value for name, value in options.items() if name != "temperature"}
        bounds = Bounds("topk", x, x.ndim - 1, without)
        z, lse, p = bounds.z, bounds.lse, bounds.p
    call = {"return_logprob": True, "return_valid": True} | options | filters
    token, logprob, valid = onepass.sample(x, **call)
    again = onepass.sample(draw(laid_out(x.copy())), **call)[0]
    np.testing.assert_array_equal(token, again, "the same draw from other memory")
    drawn = np.isfinite(lse)
    np.testing.assert_array_equal(valid, drawn)
    assert (token[~drawn] == -1).all()
    if not drawn.any():
        return
    at = np.where(drawn, token, 0)[..., None]
    assert ((at >= 0) & (at < z.shape[-1])).all()
    own = np.take_along_axis(z, at, -1)
    assert np.isfinite(own[drawn]).all(), "a hidden token"
    error = np.take_along_axis(bounds.weight_error, at, -1)[..., 0]
    log = np.take_along_axis(bounds.log, at, -1)[..., 0]
    bounds.close(logprob[drawn], log[drawn], (error + bounds.ulps * finite(log))[drawn], "logprob")
    # Within rounding of the filters' edges either side will do.
    above = z > own + 64 * bounds.logit_error.max(
        -1, keepdims=True, initial=0
    ) + bounds.ulps * finite(own)
    likelier = np.where(above, p, 0).sum(-1)
    top_k = 1 if one else filters.get("top_k", 0)
    if top_k:
        assert (above.sum(-1) < top_k)[drawn].all(), "top_k takes it out"
    kept = np.sort(p, -1)[..., ::-1][..., : top_k or None].sum(-1)
    assert (likelier < f64(filters.get("top_p", 1.0)) * kept * (1 + 1e-4) + SMALL)[drawn].all(), (
        "top_p takes it out"
    )
    least = f64(filters.get("min_p", 0.0)) * p.max(-1, initial=0) * (1 - 1e-4)
    assert (np.take_along_axis(p, at, -1)[..., 0] >= least - SMALL)[drawn].all() or one, (
        "min_p takes it out"
    )


@tried
@given(st.data())
def test_gate(data):
    draw = data.draw
    shape = draw(shapes(longest=64))
    x = draw(laid_out(numbers(draw, shape, draw(st.sampled_from(DTYPES)))))
    experts = shape[-1]
    if experts == 0:
        return
    bounds = Bounds("topk", x, x.ndim - 1, {})
    soft = draw(st.booleans())
    with np.errstate(over="ignore"):
        scores = bounds.p if soft else 1 / (1 + np.exp(-bounds.z))
    bias = numbers(draw, (experts,), np.float32, spread=0.5) if draw(st.booleans()) else None
    k, scale, renormalize = (
        draw(st.integers(1, min(experts, 20))),
        draw(st.sampled_from([1.0, 2.5])),
        draw(st.booleans()),
    )
    weights, chosen = onepass.gate(
        x,
        k,
        score="softmax" if soft else "sigmoid",
        bias=bias,
        scale=scale,
        renormalize=renormalize,
    )
    assert (np.diff(np.sort(chosen, -1), axis=-1) > 0).all()
    keys = bounds.z if bias is None else scores + bias
    take = lambda of, at: np.take_along_axis(of, at, -1)  # noqa: E731
    best = np.argsort(-keys, axis=-1, kind="stable")[..., :k]
    if bias is None:
        np.testing.assert_array_equal(chosen, best)
    else:
        assert (
            np.abs(take(keys, chosen) - take(keys, best))
            <= 16 * bounds.unit * (1 + np.abs(take(keys, best)))
        ).all()
    expected = take(scores, chosen)
    error = (
        take(bounds.weight_error, chosen)
        if soft
        else 16 * bounds.unit * (1 + finite(take(bounds.z, chosen)))
    ) * expected
    if renormalize:
        total = expected.sum(-1, keepdims=True)
        relative = error / np.maximum(expected, 1e-300)
        expected = np.where(total == 0, 0, expected / np.where(total == 0, 1, total))
        error = expected * (
            relative + relative.max(-1, keepdims=True) + bounds.ulps
        ) + 1e-37 / np.maximum(total, 1e-37)
    bounds.close(weights, expected * scale, error * scale * 2, "weights")


@tried
@given(st.data())
def test_attention(data):
    draw = data.draw
    batch, kv_heads, group = (
        draw(st.integers(0, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
    )
    queries, dim = (
        draw(st.sampled_from([0, 1, 1, 3, 7, 20, 65])),
        draw(st.sampled_from([8, 16, 40, 64, 128])),
    )
    keys = draw(st.sampled_from([0, 1, 5, 17, 64, 130]))
    heads = kv_heads * group
    dtype = draw(st.sampled_from([kind for kind in DTYPES if kind != np.float64]))

    def make(*shape):
        return draw(laid_out(numbers(draw, shape, dtype, spread=1.0), last=False))

    q, k, v = (
        make(batch, heads, queries, dim),
        make(batch, kv_heads, keys, dim),
        make(batch, kv_heads, keys, dim),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    options = some(
        draw,
        {
            "scale": lambda: draw(st.sampled_from([0.05, 0.3, 1.0])),
            "softcap": lambda: draw(st.sampled_from([2.0, 30.0])),
            "mask": lambda: masks(draw, (batch, heads, queries, keys)),
            "lengths": lambda: rng.integers(0, keys + 1, batch).astype(
                draw(st.sampled_from([np.int32, np.int64]))
            ),
            "causal": lambda: draw(st.booleans()),
            "window": lambda: sides(draw),
            "alibi": lambda: rng.uniform(
                0, 0.5, draw(st.sampled_from([(heads,), (batch, heads)]))
            ).astype(np.float32),
            "sinks": lambda: rng.normal(size=heads).astype(np.float32),
        },
    )
    more = some(
        draw, {"split": lambda: draw(st.sampled_from([1, 16, 50])), "batch_invariant": lambda: True}
    )
    o, lse = onepass.attention(q, k, v, return_lse=True, **options, **more)
    expected, expected_lse = reference.attention(f64(q), f64(k), f64(v), **options)
    # What each is off by, relative to the sum of sizes, by the largest logit that there may be.
    sizes, _ = reference.attention(f64(q), f64(k), np.abs(f64(v)), **options)
    scale = options.get("scale", dim**-0.5)
    dots = np.abs(f64(q)) @ np.repeat(np.abs(f64(k)), group, 1).swapaxes(2, 3) * scale
    largest = dots.max(initial=0)
    added = sum(finite(f64(part)).max(initial=0) for part in parts_of(options.get("mask"), "f"))
    if "alibi" in options:
        added = added + options["alibi"].max(initial=0) * (queries + keys)
    logit = 2.0**-23 * (
        (2 + dim**0.5 / 2) * largest
        + 10 * (largest + added + options.get("softcap", 0))
        + 2 * added
    )
    walk = 2.0**-23 * (ULPS["attention"] + (keys + 1) ** 0.5)
    bounds = Bounds("attention", q.astype(np.float32), 3, {})
    bounds.close(o, expected, sizes * 2 * (logit + walk), "o")
    bounds.close(lse, expected_lse, logit + walk * (1 + finite(expected_lse) + largest), "lse")

    # Heads after tokens in memory, and keys in two places that are merged.
    turned = lambda array: np.ascontiguousarray(array.swapaxes(1, 2))  # noqa: E731
    other = onepass.attention(turned(q), turned(k), turned(v), layout="bshd", **options, **more)
    bounds.close(other.swapaxes(1, 2), expected, sizes * 2 * (logit + walk), "bshd")
    if {"mask", "lengths", "causal", "window", "alibi", "sinks"} & set(options):
        return
    cut = draw(st.integers(0, keys))
    parts = [
        onepass.attention(q, k[:, :, s], v[:, :, s], return_lse=True, dtype="f32", **options)
        for s in (np.s_[:cut], np.s_[cut:])
    ]
    merged, merged_lse = onepass.merge_attention(*parts[0], *parts[1])
    bounds.close(merged, expected, sizes * 4 * (logit + walk), "merged")
    bounds.close(
        merged_lse,
        expected_lse,
        2 * (logit + walk * (1 + finite(expected_lse) + largest)),
        "merged lse",
    )
