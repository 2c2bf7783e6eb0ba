"""What chooses from rows beside float64, its options in all combinations, over shapes, dtypes and
layouts in memory."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from properties import (
    DTYPES,
    Bounds,
    a_row,
    f64,
    finite,
    laid_out,
    numbers,
    row_call,
    shapes,
    some,
    tried,
)

import onepass

pytestmark = pytest.mark.filterwarnings(
    "ignore:overflow encountered", "ignore:invalid value encountered"
)


SMALL = 1e-30


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


@tried
@given(st.data())
def test_sample(data):
    """What no draw may do; that draws are spread as the probabilities is test_select.py's."""
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
