"""cross_entropy, its gradient, and both at once."""

import numpy as np
import pytest
import reference
from conftest import TOLERANCE

import onepass

OPTIONS = {
    "none": {},
    "sum": {"reduction": "sum"},
    "each": {"reduction": "none"},
    "ignored": {"ignore_index": 3},
    "smoothed": {"label_smoothing": 0.2},
    "z loss": {"z_loss": 0.1, "reduction": "none"},
    "temperature": {"temperature": 0.7},
    "softcap": {"softcap": 3.0, "scale": 2.0},
}


@pytest.fixture
def target(random):
    return random.integers(0, 11, size=6)


def tolerance(dtype):
    return {"rtol": 4 * max(TOLERANCE[dtype], 1e-6), "atol": 4 * max(TOLERANCE[dtype], 1e-6)}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_loss(options, index, library, dtype, target, random):
    x = library.array(random.normal(size=(6, 11)), dtype)
    loss, lse = onepass.cross_entropy(x, library.array(target, index), return_lse=True, **options)
    assert library.dtype(loss) == dtype
    expected = reference.cross_entropy(library.numpy(x), target, **options)
    np.testing.assert_allclose(library.numpy(loss), expected, **tolerance(dtype))
    assert library.dtype(lse) == ("float64" if dtype == "float64" else "float32")


def test_dtype_is_of_the_loss(library, target, random):
    """The gradient has x's, so that it can go over x."""
    x, classes = library.array(random.normal(size=(6, 11)), "float16"), library.array(target, "int32")
    loss, dx, lse = onepass.cross_entropy_with_gradient(x, classes, dtype="float32", return_lse=True)
    assert [library.dtype(result) for result in (loss, dx, lse)] == ["float32", "float16", "float32"]
    for line in ("dtype: of the loss; None: x's. The gradient has x's.", "`out=(None, x)` writes the gradient over x"):
        assert line in " ".join(onepass.cross_entropy_with_gradient.__doc__.split())
    if library.name != "jax":
        own = library.array(np.zeros((6, 11)), "float64")
        assert onepass.cross_entropy_with_gradient(x, classes, out=(None, own))[1] is own
        np.testing.assert_allclose(library.numpy(own), library.numpy(dx), rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_gradient(options, library, target, random):
    x = random.normal(size=(6, 11))
    step = 1e-6
    expected = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        nudge = np.zeros_like(x)
        nudge[i] = step
        up, down = (reference.cross_entropy(v, target, **options) for v in (x + nudge, x - nudge))
        expected[i] = (up - down).sum() / (2 * step)

    own = library.array(x, "float64")
    classes = library.array(target, "int32")
    loss, dx, lse = onepass.cross_entropy_with_gradient(own, classes, return_lse=True, **options)
    np.testing.assert_allclose(library.numpy(dx), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        library.numpy(loss), library.numpy(onepass.cross_entropy(own, classes, **options)), rtol=1e-6
    )
    ones = library.array(np.ones(library.numpy(loss).shape), "float64")
    for given in (lse, None):
        dx = onepass.cross_entropy_backward(own, classes, ones, given, **options)
        np.testing.assert_allclose(library.numpy(dx), expected, rtol=1e-5, atol=1e-5)


def test_the_gradient_may_take_the_place_of_the_logits(target, random):
    x = random.normal(size=(6, 11)).astype(np.float32)
    loss, dx = onepass.cross_entropy_with_gradient(x, target)
    again, same = onepass.cross_entropy_with_gradient(x, target, out=(None, x))
    assert same is x
    np.testing.assert_array_equal(dx, x)
    assert loss == again


def test_all_ignored_is_zero():
    assert onepass.cross_entropy(np.ones((2, 3)), np.array([-100, -100])) == 0


def test_what_cannot_be():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="target: .*3"):
        onepass.cross_entropy(x, np.array([0, 3]))
    with pytest.raises(ValueError, match="target: dtype f32"):
        onepass.cross_entropy(x, np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="target"):
        onepass.cross_entropy(x, np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="reduction: 'average' is not one of none, sum, mean"):
        onepass.cross_entropy(x, np.zeros(2, np.int64), reduction="average")
