"""The gradients of attention and of merge_attention on every library's arrays, against NumPy in
float64."""

import numpy as np
import pytest
import reference
from conftest import TOLERANCE, Library, own, skip_without_gradients
from test_attention import NOT_FOR_NUMPY, OPTIONS, B, D, G, H, K, Q, other, tensors

import onepass

dtypes = pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float64"], indirect=True
)
layouts = pytest.mark.parametrize("layout", ["bhsd", "bshd"])
SHAPES = ((B, H, Q, D), (B, G, K, D), (B, G, K, D))
GRADIENTS = {name: given for name, given in OPTIONS.items() if not NOT_FOR_NUMPY & set(given)}
NAMES = ("d_q", "d_k", "d_v")


@pytest.fixture(autouse=True)
def _on_this_device(request):
    if "library" not in request.fixturenames:
        return
    device = request.getfixturevalue("library").device
    skip_without_gradients(device)
    wide = "dtype" in request.fixturenames and request.getfixturevalue("dtype") == "float64"
    if device == "cuda" and wide:
        pytest.skip("attention has no float64 on a GPU")


def forward(library, dtype, inputs, **options):
    owned = {name: own(library, value, dtype) for name, value in options.items()}
    return owned, *onepass.attention(*inputs, return_lse=True, **owned)


def close(library, result, expected, dtype, name):
    """Relative to the largest element: sums of many terms of rounded inputs."""
    bound = 4 * TOLERANCE[dtype] * max(1, np.abs(expected).max(initial=0))
    result = result if isinstance(result, np.ndarray) else library.numpy(result)
    np.testing.assert_allclose(result, expected, rtol=0, atol=bound, err_msg=name)


def floating_part(mask):
    parts = mask if isinstance(mask, tuple) else (mask,)
    return [part for part in parts if isinstance(part, np.ndarray) and part.dtype.kind == "f"]


def check(library, dtype, random, inputs, layout="bhsd", **options):
    owned, o, lse = forward(library, dtype, inputs, layout=layout, **options)
    d_o = library.array(random.normal(size=tuple(o.shape)), dtype)
    d_lse = library.array(random.normal(size=tuple(lse.shape)), library.dtype(lse))
    asked = {
        "return_d_sinks": "sinks" in options,
        "return_d_mask": bool(floating_part(options.get("mask"))),
    }
    results = onepass.attention_backward(*inputs, o, lse, d_o, d_lse, **owned, **asked)
    wide = other(layout, *map(library.numpy, (*inputs, d_o)))
    *expected, extra = reference.attention_backward(*wide, library.numpy(d_lse), **options)
    for result, wanted, name in zip(results, expected, NAMES):
        assert library.is_own(result) and library.dtype(result) == dtype
        close(library, *other(layout, library.numpy(result)), wanted, dtype, name)
    assert len(results) == 3 + sum(asked.values())
    if asked["return_d_sinks"]:
        close(library, results[3], extra["sinks"], dtype, "d_sinks")
    if asked["return_d_mask"]:
        close(library, results[-1], extra["mask"], dtype, "d_mask")


@dtypes
@pytest.mark.parametrize("options", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_agrees_with_numpy(options, library, dtype, random):
    check(library, dtype, random, tensors(library, dtype, random, *SHAPES), **options)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("queries", [1, 70])
@pytest.mark.parametrize("dim", [8, 64, 128])
def test_grouped_heads(kv_heads, queries, dim, library, random):
    keys = (1, kv_heads, 150, dim)
    inputs = tensors(library, "float32", random, (1, 4, queries, dim), keys, keys)
    check(library, "float32", random, inputs, causal=True)


@dtypes
@layouts
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True, "window": (2, -1), "sinks": np.linspace(-1, 1, H)},
        {"mask": np.linspace(-2, 2, 14)},
    ],
    ids=["plain", "window, sinks", "mask"],
)
def test_sequences_side_by_side(options, layout, library, dtype, random):
    places = {"q_offsets": np.array([0, 2, 2, 7]), "kv_offsets": np.array([0, 5, 8, 14])}
    shapes = ((H, 7, D), (G, 14, D), (G, 14, D))
    inputs = tensors(library, dtype, random, *shapes, layout=layout)
    check(library, dtype, random, inputs, layout, **places, **options)


@dtypes
def test_tokens_before_heads(library, dtype, random):
    inputs = tensors(library, dtype, random, *SHAPES, layout="bshd")
    mask = np.linspace(-2, 2, H * K).reshape(1, H, 1, K)  # its order stays
    check(library, dtype, random, inputs, "bshd", causal=True, mask=mask)


@pytest.mark.parametrize(
    "shapes",
    [((0, 2, 3, 8), (0, 2, 4, 8)), ((1, 2, 0, 8), (1, 2, 4, 8)), ((1, 2, 3, 8), (1, 2, 0, 8))],
)
def test_empty(shapes, library):
    q, k = (library.array(np.ones(shape, np.float32)) for shape in shapes)
    o, lse = onepass.attention(q, k, k, return_lse=True)
    for result, of in zip(onepass.attention_backward(q, k, k, o, lse, o), (q, k, k)):
        assert tuple(result.shape) == tuple(of.shape) and (library.numpy(result) == 0).all()


@layouts
def test_values_of_another_dim(layout, random):
    library, dtype = Library("numpy", "cpu"), "float64"
    shapes = ((B, H, Q, D), (B, G, K, D), (B, G, K, 24))
    inputs = tensors(library, dtype, random, *shapes, layout=layout)
    check(library, dtype, random, inputs, layout, causal=True)


def test_wide_gradients_of_narrow_inputs(library, random):
    inputs = tensors(library, "float16", random, *SHAPES)
    _, o, lse = forward(library, "float16", inputs)
    narrow = onepass.attention_backward(*inputs, o, lse, o)
    wide = onepass.attention_backward(*inputs, o, lse, o, dtype="float32")
    for one, rounded in zip(wide, narrow):
        assert library.dtype(one) == "float32" and library.dtype(rounded) == "float16"
        np.testing.assert_allclose(library.numpy(one), library.numpy(rounded), rtol=2e-3, atol=2e-3)


def plain(random, **changes):
    """Arguments by their names, with the forward's results."""
    q, k, v = (random.normal(size=shape).astype(np.float32) for shape in SHAPES)
    o, lse = onepass.attention(q, k, v, return_lse=True)
    given = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "d_o": np.ones_like(o)}
    return given | changes


def test_adds_to_what_is_there(random):
    given = plain(random)
    once = onepass.attention_backward(**given)
    out = tuple(array.copy() for array in once)
    twice = onepass.attention_backward(**given, accumulate=True, out=out)
    for own_array, result, first in zip(out, twice, once):
        assert result is own_array
        np.testing.assert_allclose(result, 2 * first, rtol=1e-5, atol=1e-6)


def test_own_outputs(random):
    given = plain(random, sinks=np.ones(H, np.float32))
    d_k, d_sinks = np.zeros((B, G, K, D), np.float32), np.zeros(H)
    results = onepass.attention_backward(
        **given, return_d_sinks=True, out=(None, d_k, None, d_sinks)
    )
    assert results[1] is d_k and results[3] is d_sinks and d_k.any() and d_sinks.any()


def test_the_same_bits_on_any_number_of_threads(random):
    given = plain(random)
    before = onepass.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 3):
            onepass.set_num_threads(threads)
            runs.append(onepass.attention_backward(**given))
    finally:
        onepass.set_num_threads(before)
    for others in runs[1:]:
        assert all((a == b).all() for a, b in zip(runs[0], others))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lse": None}, ValueError, "lse: is missing"),
        ({"k": None}, ValueError, "k: is missing"),
        ({"d_o": np.zeros((B, H, Q, D + 8), np.float32)}, ValueError, "d_o: "),
        ({"d_o": np.zeros((B, H, Q, D), np.int32)}, ValueError, "d_o: dtype i32"),
        (
            {"d_o": np.zeros((B, H, Q, 2 * D), np.float32)[..., ::2]},
            ValueError,
            "d_o: stride 2 of the last dimension",
        ),
        ({"d_lse": np.zeros((B, H, 1), np.float32)}, ValueError, "d_lse: "),
        ({"o": np.zeros((B, H, Q + 1, D), np.float32)}, ValueError, "o: shape"),
        ({"dtype": "f16"}, ValueError, "dtype: f16 is neither that of q, f32, nor f32"),
        ({"layout": "sbhd"}, ValueError, "layout: 'sbhd' is not one of"),
        ({"out": (None, np.zeros((B, G, K, 8), np.float32))}, ValueError, r"out\[1\]: shape"),
        (
            {"out": (None, np.zeros((B, G, K, D)))},
            ValueError,
            r"out\[1\]: dtype f64 is neither that of q, f32, nor f32",
        ),
        ({"return_d_sinks": True}, ValueError, "return_d_sinks: there are no sinks"),
        (
            {"return_d_mask": True, "mask": np.ones(K, bool)},
            ValueError,
            "return_d_mask: there is no floating mask",
        ),
        ({"accumulate": True}, ValueError, "accumulate: needs arrays for d_q, d_k and d_v"),
        (
            {"accumulate": True, "out": (None, None, np.zeros((B, G, K, D), np.float32))},
            ValueError,
            "accumulate: needs arrays",
        ),
        ({"deterministic": 1}, TypeError, "deterministic: 'int' is not True or False"),
        (
            {"pages": np.zeros((B, 1), np.int32), "lengths": np.array([1, 2])},
            NotImplementedError,
            "pages: keys in pages have no gradient",
        ),
        ({"variant": "none"}, ValueError, "variant"),
    ],
)
def test_wrong_arguments(change, error, message, random):
    with pytest.raises(error, match=f"^{message}"):
        onepass.attention_backward(**plain(random, **change))


def test_out_must_not_be_an_input(random):
    given = plain(random)
    with pytest.raises(ValueError, match="overlaps"):
        onepass.attention_backward(**given, out=given["q"])


def test_explain(random):
    given = plain(random)
    out = np.full_like(given["q"], 7)
    told = onepass.explain(onepass.attention_backward, **given, out=out)
    assert told.variant in told.plan and told.reasons and told.least_bytes > 0
    assert (out == 7).all(), "nothing was computed"


@dtypes
@layouts
def test_merge(layout, library, dtype, random):
    rows = (B, H, Q)
    a, b, d_o = tensors(library, dtype, random, *((*rows, D),) * 3, layout=layout)
    wide = "float64" if dtype == "float64" else "float32"
    sums = [random.normal(size=rows).astype(wide) for _ in range(3)]
    sums[0][0, 0] = -np.inf
    sums[1][0, 0, :2] = -np.inf  # neither has a key, then only the second has
    lse_a, lse_b, d_lse = (library.array(each) for each in sums)
    results = onepass.merge_attention_backward(a, lse_a, b, lse_b, d_o, d_lse, layout=layout)
    values = other(layout, *map(library.numpy, (a, b, d_o)))
    expected = reference.merge_attention_backward(
        values[0], sums[0], values[1], sums[1], values[2], sums[2]
    )
    for result, wanted, own_dtype in zip(results, expected, (dtype, wide) * 2):
        assert library.is_own(result) and library.dtype(result) == own_dtype
        values = library.numpy(result)
        values = other(layout, values)[0] if values.ndim == 4 else values
        close(library, values, wanted, dtype, "")


def test_merge_without_a_gradient_of_the_lse():
    o, lse = np.ones((2, 8), np.float32), np.zeros(2, np.float32)
    out = np.zeros_like(o)
    d_a, d_lse_a, d_b, d_lse_b = onepass.merge_attention_backward(o, lse, 3 * o, lse, o, out=out)
    assert d_a is out and (d_a == 0.5).all() and (d_b == 0.5).all()
    assert (d_lse_a == -4).all() and (d_lse_b == 4).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b": np.ones((3, 8), np.float32)}, "b: shape"),
        ({"lse_b": None}, "lse_b: "),
        ({"d_o": None}, "d_o: is missing"),
        ({"d_lse": np.zeros(3, np.float32)}, "d_lse: shape"),
        ({"out": (None, np.zeros(3, np.float32))}, r"out\[1\]: shape"),
    ],
)
def test_wrong_arguments_of_the_merge(change, message):
    o, lse = np.ones((2, 8), np.float32), np.zeros(2, np.float32)
    given = {"a": o, "lse_a": lse, "b": o, "lse_b": lse, "d_o": o} | change
    with pytest.raises(ValueError, match=f"^{message}"):
        onepass.merge_attention_backward(**given)
