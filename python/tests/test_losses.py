"""cross_entropy, its gradient, and both at once."""

import numpy as np
import pytest
import reference
from conftest import TOLERANCE, own

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
    "weights": {"weight": np.linspace(0, 2, 11)},
    "weights and all": {
        "weight": np.linspace(2, 0, 11),
        "label_smoothing": 0.2,
        "ignore_index": 3,
        "z_loss": 0.1,
    },
    "weights, each": {"weight": np.linspace(0, 2, 11), "label_smoothing": 1.0, "reduction": "none"},
}
SMOOTH = {name: options for name, options in OPTIONS.items() if "ignore_index" not in options}


@pytest.fixture
def target(random):
    return random.integers(0, 11, size=6)


@pytest.fixture
def probabilities(random):
    q = random.uniform(size=(6, 11)) * (random.uniform(size=(6, 11)) < 0.7)
    return q / q.sum(-1, keepdims=True)


def owned(library, options, dtype="float64"):
    return {name: own(library, value, dtype) for name, value in options.items()}


def tolerance(dtype):
    return {"rtol": 4 * max(TOLERANCE[dtype], 1e-6), "atol": 4 * max(TOLERANCE[dtype], 1e-6)}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_loss(options, index, library, dtype, target, random):
    x = library.array(random.normal(size=(6, 11)), dtype)
    mine = owned(library, options, dtype)
    loss, lse = onepass.cross_entropy(x, library.array(target, index), return_lse=True, **mine)
    assert library.dtype(loss) == dtype
    expected = reference.cross_entropy(library.numpy(x), target, **options)
    np.testing.assert_allclose(library.numpy(loss), expected, **tolerance(dtype))
    assert library.dtype(lse) == ("float64" if dtype == "float64" else "float32")


def test_dtype_is_of_the_loss(library, target, random):
    """The gradient has x's, so that it can go over x."""
    x, classes = (
        library.array(random.normal(size=(6, 11)), "float16"),
        library.array(target, "int32"),
    )
    loss, dx, lse = onepass.cross_entropy_with_gradient(
        x, classes, dtype="float32", return_lse=True
    )
    assert [library.dtype(result) for result in (loss, dx, lse)] == [
        "float32",
        "float16",
        "float32",
    ]
    for line in (
        "dtype: of the loss; None: x's. The gradient has x's.",
        "`out=(None, x)` writes the gradient over x",
    ):
        assert line in " ".join(onepass.cross_entropy_with_gradient.__doc__.split())
    if library.name != "jax":
        own = library.array(np.zeros((6, 11)), "float64")
        assert onepass.cross_entropy_with_gradient(x, classes, out=(None, own))[1] is own
        np.testing.assert_allclose(library.numpy(own), library.numpy(dx), rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("options", SMOOTH.values(), ids=SMOOTH.keys())
def test_loss_of_probabilities(options, library, dtype, probabilities, random):
    x, q = (library.array(values, dtype) for values in (random.normal(size=(6, 11)), probabilities))
    loss = onepass.cross_entropy(x, q, **owned(library, options, dtype))
    expected = reference.cross_entropy(library.numpy(x), library.numpy(q), **options)
    np.testing.assert_allclose(library.numpy(loss), expected, **tolerance(dtype))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_gradient(options, library, target, random):
    check_gradient(
        library, random.normal(size=(6, 11)), target, library.array(target, "int32"), options
    )


@pytest.mark.parametrize("options", SMOOTH.values(), ids=SMOOTH.keys())
def test_gradient_of_probabilities(options, library, probabilities, random):
    x = random.normal(size=(6, 11))
    check_gradient(library, x, probabilities, library.array(probabilities, "float64"), options)


def check_gradient(library, x, target, classes, options):
    step = 1e-6
    expected = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        nudge = np.zeros_like(x)
        nudge[i] = step
        up, down = (reference.cross_entropy(v, target, **options) for v in (x + nudge, x - nudge))
        expected[i] = (up - down).sum() / (2 * step)

    logits = library.array(x, "float64")
    options = owned(library, options)
    loss, dx, lse = onepass.cross_entropy_with_gradient(logits, classes, return_lse=True, **options)
    np.testing.assert_allclose(library.numpy(dx), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        library.numpy(loss),
        library.numpy(onepass.cross_entropy(logits, classes, **options)),
        rtol=1e-6,
    )
    ones = library.array(np.ones(library.numpy(loss).shape), "float64")
    for given in (lse, None):
        dx = onepass.cross_entropy_backward(logits, classes, ones, given, **options)
        np.testing.assert_allclose(library.numpy(dx), expected, rtol=1e-5, atol=1e-5)


def test_the_gradient_may_take_the_place_of_the_logits(target, random):
    x = random.normal(size=(6, 11)).astype(np.float32)
    loss, dx = onepass.cross_entropy_with_gradient(x, target)
    again, same = onepass.cross_entropy_with_gradient(x, target, out=(None, x))
    assert same is x
    np.testing.assert_array_equal(dx, x)
    assert loss == again


def test_a_hidden_class_counts_where_it_has_a_probability():
    x, q = np.zeros((2, 3)), np.array([[0.5, 0.5, 0], [0.5, 0, 0.5]])
    loss = onepass.cross_entropy(x, q, lengths=np.array([2, 2]), reduction="none")
    np.testing.assert_allclose(loss, [np.log(2), np.inf])


def test_explained():
    plan = onepass.explain(
        onepass.cross_entropy, np.zeros((2, 3)), np.zeros((2, 3)), weight=np.ones(3)
    )
    assert plan.least_bytes == 2 * 2 * 3 * 8


def test_all_ignored_is_zero():
    assert onepass.cross_entropy(np.ones((2, 3)), np.array([-100, -100])) == 0


def test_what_cannot_be():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="target: .*3"):
        onepass.cross_entropy(x, np.array([0, 3]))
    with pytest.raises(
        ValueError,
        match="target: dtype f32 and shape .2.: probabilities have the shape of x, .2, 3.",
    ):
        onepass.cross_entropy(x, np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="ignore_index: 1 is a class"):
        onepass.cross_entropy(x, np.zeros((2, 3), np.float32), ignore_index=1)
    with pytest.raises(
        ValueError, match="weight: shape .2. is not one value for each of 3 classes"
    ):
        onepass.cross_entropy(x, np.zeros(2, np.int64), weight=np.ones(2))
    with pytest.raises(ValueError, match="weight: dtype i64"):
        onepass.cross_entropy(x, np.zeros(2, np.int64), weight=np.ones(3, np.int64))
    with pytest.raises(ValueError, match="target"):
        onepass.cross_entropy(x, np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="reduction: 'average' is not one of none, sum, mean"):
        onepass.cross_entropy(x, np.zeros(2, np.int64), reduction="average")
    for name in ("size_average", "reduce"):
        with pytest.raises(TypeError, match=f"{name}: is `reduction` here"):
            onepass.cross_entropy(x, np.zeros(2, np.int64), **{name: True})
    with pytest.raises(TypeError, match="input: is `x` here"):
        onepass.cross_entropy(input=x, target=np.zeros(2, np.int64))
