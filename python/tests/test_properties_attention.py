"""Attention beside float64, its options in all combinations, over shapes, dtypes and layouts in
memory."""

import hypothesis.strategies as st
import numpy as np
import pytest
import reference
from hypothesis import given
from properties import (
    DTYPES,
    ULPS,
    Bounds,
    f64,
    finite,
    laid_out,
    masks,
    numbers,
    parts_of,
    sides,
    some,
    tried,
)

import onepass

pytestmark = pytest.mark.filterwarnings(
    "ignore:overflow encountered", "ignore:invalid value encountered"
)


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
