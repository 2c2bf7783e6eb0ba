"""What test_properties_*.py draw, and how far from float64 an op may be.

The bounds are those of docs/numerics.md, as cli/ops/row_bounds.hpp and
cli/ops/expect_attention.cpp have them: ulps of the computing type, the conditioning of exp, and
half an ulp of the result's dtype. ONEPASS_PROPERTIES=long tries many more examples, other ones
each time.
"""

import os
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import reference
from conftest import has

SETTINGS = {
    "ci": hypothesis.settings(max_examples=250, derandomize=True, database=None, deadline=None),
    "long": hypothesis.settings(max_examples=2_000, deadline=None),
}
tried = SETTINGS[os.environ.get("ONEPASS_PROPERTIES", "ci")]

BF16: Any = __import__("ml_dtypes").bfloat16 if has("ml_dtypes") else np.float16
DTYPES = (np.float32, np.float16, np.float64, BF16)
ULPS = {
    "softmax": 8,
    "log_softmax": 4,
    "logsumexp": 4,
    "softmax_backward": 6,
    "log_softmax_backward": 8,
    "cross_entropy": 6,
    "cross_entropy_backward": 8,
    "topk": 8,
    "attention": 8,
}
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
SMALLEST = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}
LARGEST = {"float64": 1.79e308, "float32": 3.4e38, "float16": 65504.0, "bfloat16": 3.38e38}


def f64(array):
    return np.asarray(array).astype(np.float64)


def finite(values):
    """Sizes that an error is relative to."""
    return np.where(np.isfinite(values), np.abs(values), 0)


# ---- what is drawn ----


@st.composite
def shapes(draw, min_dims=1, longest=70):
    """Mostly a few rows; some without elements, some long enough for the variants
    that cut a row."""
    shape = draw(st.lists(st.integers(0, 5), min_size=min_dims, max_size=4))
    if draw(st.integers(0, 3)):
        shape = [max(extent, 1) for extent in shape]
    shape[-1] = draw(
        st.one_of(st.integers(0, 9), st.integers(10, longest), st.sampled_from([257, 1030]))
    )
    return tuple(shape)


@st.composite
def laid_out(draw, values, last=True):
    """The same values elsewhere in memory: axes in another order, steps, backwards. Not `last`: but
    for that axis."""
    kind = draw(st.integers(0, 3))
    if kind == 0 or values.ndim == 0:
        return values.copy("C")
    moved = values.ndim if last else values.ndim - 1
    order = [*draw(st.permutations(range(moved))), *range(moved, values.ndim)]
    steps = [draw(st.sampled_from([1, 1, 2, -1, -3])) for _ in range(moved)] + [1] * (
        values.ndim - moved
    )
    extents = [values.shape[axis] * abs(steps[axis]) for axis in order]
    base = np.full(extents, 77, values.dtype).transpose(np.argsort(order))
    view = base[tuple(slice(None, None, step) for step in steps)]
    view = view[tuple(slice(extent) for extent in values.shape)]
    view[...] = values
    return view


def numbers(draw, shape, dtype, spread=None):
    """Normal ones of some spread, ties, an offset, or some −inf: by a seed, since hypothesis takes
    long for each."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.normal(size=shape) * (spread or draw(st.sampled_from([0.1, 1.0, 4.0, 30.0])))
    fill = (
        "plain"
        if spread
        else draw(st.sampled_from(["plain", "plain", "ties", "offset", "minus inf"]))
    )
    if fill == "ties":
        values = np.round(values)
    if fill == "offset":
        values = values + 1000
    if fill == "minus inf":
        values = np.where(rng.random(shape) < 0.3, -np.inf, values)
    return np.asarray(values, dtype)


def narrowed(draw, shape):
    """A shape that broadcasts to it."""
    shape = [extent if draw(st.integers(0, 2)) else 1 for extent in shape]
    return tuple(shape[draw(st.integers(0, len(shape))) :])


def a_row(draw, rows, least, most):
    """A number, or one a row, or what broadcasts to that."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        return float(np.round(rng.uniform(least, most), 2))
    values = rng.uniform(least, most, narrowed(draw, rows))
    return np.asarray(values, draw(st.sampled_from([np.float32, np.float64])))


def masks(draw, shape):
    """Of a boolean and an additive part none, one or both."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    keep = np.asarray(rng.random(narrowed(draw, shape))) < draw(
        st.sampled_from([0.0, 0.3, 0.8, 1.0])
    )
    keep = np.asarray(keep, draw(st.sampled_from([bool, np.uint8])))
    bias = np.asarray(rng.normal(size=narrowed(draw, shape)))
    if draw(st.booleans()):
        bias[rng.random(bias.shape) < 0.2] = -np.inf
    bias = bias.astype(draw(st.sampled_from([np.float32, np.float16, np.float64])))
    return draw(st.sampled_from([keep, bias, (keep, bias), (bias, keep)]))


def sides(draw):
    return draw(st.integers(-1, 6)), draw(st.integers(-1, 6))


def some(draw, choices):
    """Each option with even odds, so that they meet in all combinations."""
    return {name: choose() for name, choose in choices.items() if draw(st.booleans())}


@st.composite
def logit_options(draw, shape, axis, least_scale=0.1):
    """Of x of this shape, whatever makes logits of it. With a negative scale −inf becomes +inf."""
    rows = shape[:axis] + shape[axis + 1 :]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if not draw(st.integers(0, 4)):
        return {}
    return some(
        draw,
        {
            "scale": lambda: a_row(draw, rows, least_scale, 2),
            "temperature": lambda: a_row(draw, rows, 0.3, 3),
            "softcap": lambda: draw(st.sampled_from([0.5, 5.0, 50.0])),
            "mask": lambda: masks(draw, shape),
            "lengths": lambda: np.asarray(
                rng.integers(0, shape[axis] + 1, narrowed(draw, rows)),
                draw(st.sampled_from([np.int32, np.int64])),
            ),
            "causal": lambda: draw(st.booleans()),
            "window": lambda: sides(draw),
        },
    )


# ---- how far off it may be ----


class Bounds:
    """Of one call the exact logits with the rows along the last axis, and what they and their sum
    may be off by."""

    def __init__(self, op, x, axis, options):
        self.name = op
        self.computing = "float64" if x.dtype == np.float64 else "float32"
        self.unit = EPSILON[self.computing]
        self.ulps = ULPS[op] * self.unit
        self.smallest = SMALLEST[self.computing]  # what is below it may be 0
        self.z = reference.logits(f64(x), axis, **options)
        self.m = self.z.max(-1, keepdims=True, initial=-np.inf)
        self.lse = reference.lse_of(self.z)
        # Not by the lse, whose last bit is a large one where there is an offset. A row that is
        # hidden as a whole has −inf; one with +inf, as with a NaN, NaN.
        with np.errstate(invalid="ignore", divide="ignore"):
            below = self.z - np.where(np.isneginf(self.m), 0, self.m)
            total = np.exp(below).sum(-1, keepdims=True)
            self.log = np.where(np.isneginf(self.m), -np.inf, below - np.log(total))
            self.p = np.where(np.isneginf(self.m), 0, np.exp(below) / total)
        size = finite(below)
        added = parts_of(options.get("mask"), "f")
        if added or {"scale", "temperature", "softcap"} & set(options):
            capped = options.get("softcap", 0) / f64(options.get("temperature", 1))
            capped = capped[..., None] if np.ndim(options.get("temperature")) else capped
            size = size + 4 * (finite(self.z) + finite(self.m) + capped)
        for part in added:
            size = size + np.moveaxis(np.broadcast_to(finite(f64(part)), x.shape), axis, -1)
        self.logit_error = self.unit * 1.125 * size
        self.state_error = (self.p * self.logit_error).sum(-1) + self.ulps
        # Where it is worked out one after the other, rounding errors walk as far as the root
        # of their number.
        self.state_error = self.state_error + 4 * self.unit * np.sqrt(max(self.z.shape[-1], 1))
        self.weight_error = self.logit_error + self.state_error[..., None]
        self.lse_error = self.state_error + self.ulps * (finite(self.lse) + finite(self.m[..., 0]))

    def close(self, got, expected, error, what=""):
        """Within the error and a rounding to the dtype of what was got."""
        assert got.shape == np.shape(expected), what
        name = got.dtype.name
        most = min(LARGEST[name], LARGEST[self.computing])
        expected = np.where(np.abs(expected) > most, np.copysign(np.inf, expected), expected)
        tolerance = error + finite(expected) * EPSILON[name] * 0.51 + SMALLEST[name] + self.smallest
        got = f64(got)
        with np.errstate(invalid="ignore"):
            right = (
                (got == expected)
                | (np.isnan(got) & np.isnan(expected))
                | (np.abs(got - expected) <= tolerance)
            )
        # What is near the largest number may round to infinity.
        right |= np.isinf(got) & (np.abs(expected) > most * (1 - EPSILON[name]))
        if not right.all():
            first = tuple(index[0] for index in np.nonzero(~right))
            wrong = np.broadcast_to(tolerance, right.shape)[first]
            raise AssertionError(
                f"{self.name} {what}{first}: {got[first]!r} is not {expected[first]!r} "
                f"within {wrong:.3g}"
            )


def parts_of(mask, kinds):
    """Those whose dtype is of one of the kinds: "f" are added, "bu" hide."""
    parts = mask if isinstance(mask, tuple) else (mask,)
    return tuple(part for part in parts if np.asarray(part).dtype.kind in kinds)


def slope(x, axis, options):
    """dz / dx."""
    rows = lambda value: f64(value)[..., None] if np.ndim(value) else f64(value)  # noqa: E731
    scale, temperature = rows(options.get("scale", 1.0)), rows(options.get("temperature", 1.0))
    x = np.moveaxis(f64(x), axis, -1)
    factor = np.broadcast_to(scale / temperature, x.shape)
    cap = options.get("softcap")
    return (
        factor
        * (1 - np.tanh(np.where(np.isfinite(x), x, np.copysign(1e300, x)) * scale / cap) ** 2)
        if cap
        else factor
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
