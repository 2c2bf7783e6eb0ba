"""softmax, log_softmax and logsumexp: every library, dtype, axis and option."""

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import reference
from conftest import TOLERANCE, dtypes_of, own

import onepass

OPS = ["softmax", "log_softmax", "logsumexp"]

# Each with the shape 3×5×6; arrays are made the library's own where the test knows it.
OPTIONS = {
    "none": {},
    "scale": {"scale": 0.5},
    "scale a row": {"scale": np.linspace(0.5, 2, 15).reshape(3, 5)},
    "temperature": {"temperature": 0.7},
    "temperature a row": {"temperature": np.linspace(0.5, 2, 15).reshape(3, 5)},
    "softcap": {"softcap": 2.0, "scale": 3.0},
    "boolean": {"mask": np.arange(90).reshape(3, 5, 6) % 4 != 0},
    "boolean, broadcast": {"mask": np.array([True, False, True, True, False, True])},
    "additive": {"mask": np.linspace(-2, 2, 90).reshape(3, 5, 6)},
    "both": {"mask": (np.arange(6) != 2, np.linspace(-1, 1, 6))},
    "lengths": {"lengths": np.arange(15).reshape(3, 5) % 6},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "all": {
        "scale": 2.0,
        "temperature": 1.5,
        "softcap": 5.0,
        "causal": True,
        "lengths": np.full((3, 5), 4),
    },
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("op", OPS)
def test_agrees_with_numpy(op, options, library, dtype, random):
    x = library.array(random.normal(size=(3, 5, 6)) * 3, dtype)
    y = getattr(onepass, op)(
        x, **{name: own(library, value, dtype) for name, value in options.items()}
    )
    assert library.is_own(y)
    assert library.dtype(y) == dtype
    expected = getattr(reference, op)(library.numpy(x), **options)
    np.testing.assert_allclose(
        library.numpy(y), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
@pytest.mark.parametrize("op", OPS)
def test_any_axis(op, axis, library, random):
    x = random.normal(size=(4, 3, 5)).astype(np.float32)
    y = library.numpy(getattr(onepass, op)(library.array(x), axis))
    np.testing.assert_allclose(y, getattr(reference, op)(x, axis), rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_lse_comes_along(op, library, dtype, random):
    x = library.array(random.normal(size=(4, 9)), dtype)
    y, lse = getattr(onepass, op)(x, 0, return_lse=True)
    assert library.dtype(lse) == ("float64" if dtype == "float64" else "float32")
    np.testing.assert_allclose(
        library.numpy(lse), reference.logsumexp(library.numpy(x), 0), rtol=5e-6
    )
    np.testing.assert_allclose(
        library.numpy(y), library.numpy(getattr(onepass, op)(x, 0)), rtol=2e-2
    )


@pytest.mark.parametrize("out_dtype", ["float32", "float16", "f64", "bf16"])
def test_another_dtype(out_dtype, library, random):
    name = {"f64": "float64", "bf16": "bfloat16"}.get(out_dtype, out_dtype)
    if name not in dtypes_of(library):
        pytest.skip("not a dtype of this library here")
    x = random.normal(size=(4, 9)).astype(np.float32)
    y = onepass.softmax(library.array(x), dtype=out_dtype)
    assert library.dtype(y) == name
    np.testing.assert_allclose(
        library.numpy(y), reference.softmax(x), atol=max(TOLERANCE[name], 5e-6)
    )


def test_a_dtype_may_be_the_librarys_own():
    x = np.zeros((1, 2), np.float32)
    for dtype in (np.float64, np.dtype("float64"), "double"):
        assert onepass.softmax(x, dtype=dtype).dtype == np.float64


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_gradient(name, library, dtype, random):
    x = random.normal(size=(3, 8))
    dy = random.normal(size=(3, 8))
    y = getattr(onepass, name)(library.array(x, dtype), softcap=4.0, scale=2.0)
    dx = getattr(onepass, f"{name}_backward")(
        y, library.array(dy, dtype), x=library.array(x, dtype), softcap=4.0, scale=2.0
    )
    step = 1e-6
    forward = getattr(reference, name)
    expected = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        nudge = np.zeros_like(x)
        nudge[i] = step
        options = {"softcap": 4.0, "scale": 2.0}
        expected[i] = (
            (forward(x + nudge, **options) - forward(x - nudge, **options)) * dy
        ).sum() / (2 * step)
    tolerance = 8 * max(TOLERANCE[dtype], 1e-6)
    np.testing.assert_allclose(library.numpy(dx), expected, rtol=tolerance, atol=tolerance)


def test_batch_invariant(random):
    x = random.normal(size=(64, 5000)).astype(np.float32)
    whole = onepass.softmax(x, batch_invariant=True)
    np.testing.assert_array_equal(whole[:1], onepass.softmax(x[:1], batch_invariant=True))


def test_a_variant_can_be_forced(random):
    x = random.normal(size=(4, 100)).astype(np.float32)
    np.testing.assert_allclose(
        onepass.softmax(x, variant="cpu_serial"), onepass.softmax(x), rtol=1e-6
    )
    with pytest.raises(ValueError, match="variant: softmax has no 'quick'"):
        onepass.softmax(x, variant="quick")


@hypothesis.settings(deadline=None, max_examples=200)
@hypothesis.given(
    x=arrays.arrays(
        st.sampled_from([np.float32, np.float64]),
        arrays.array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=9),
        elements=st.floats(-80, 80, width=32),
    ),
    op=st.sampled_from(OPS),
    data=st.data(),
)
def test_any_shape_and_stride(x, op, data):
    axes = data.draw(st.permutations(range(x.ndim)))
    x = x.transpose(axes)[
        tuple(slice(None, None, data.draw(st.sampled_from([1, -1, 2, -3]))) for _ in axes)
    ]
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    y = getattr(onepass, op)(x, axis)
    np.testing.assert_allclose(y, getattr(reference, op)(x, axis), rtol=1e-5, atol=1e-5)
