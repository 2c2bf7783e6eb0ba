"""attention and merge_attention on every library's arrays, against NumPy in float64."""

import numpy as np
import pytest
import reference
from conftest import TOLERANCE, own

import onepass

B, H, G, Q, K, D = 2, 4, 2, 5, 9, 16  # batch, heads, kv heads, queries, keys, dim

dtypes = pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"], indirect=True)
layouts = pytest.mark.parametrize("layout", ["bhsd", "bshd"])

OPTIONS = {
    "none": {},
    "scale": {"scale": 0.5},
    "softcap": {"softcap": 1.5, "scale": 2.0},
    "causal": {"causal": True},
    "window": {"window": (2, 1)},
    "causal window": {"causal": True, "window": (3, -1)},
    "lengths": {"lengths": np.array([4, 9])},
    "lengths, causal": {"lengths": np.array([3, 7]), "causal": True},
    "no keys": {"lengths": np.array([0, 9])},
    "boolean": {"mask": np.arange(B * H * Q * K).reshape(B, H, Q, K) % 4 != 0},
    "boolean, broadcast": {"mask": np.arange(B * K).reshape(B, 1, 1, K) % 3 != 0},
    "additive": {"mask": np.linspace(-2, 2, H * Q * K).reshape(H, Q, K)},
    "both": {"mask": (np.arange(K) != 2, np.linspace(-1, 1, Q)[:, None])},
    "alibi": {"alibi": np.linspace(0.1, 1, H), "causal": True},
    "alibi a batch": {"alibi": np.linspace(0.1, 1, B * H).reshape(B, H)},
    "sinks": {"sinks": np.linspace(-1, 2, H), "causal": True},
    "split": {"split": 4},
    "batch_invariant": {"batch_invariant": True, "causal": True},
    "all": {
        "scale": 0.7, "softcap": 3.0, "lengths": np.array([5, 8]), "causal": True, "window": (4, 0),
        "mask": (np.arange(K) != 1, np.linspace(-1, 1, K)), "alibi": np.full(H, 0.2),
        "sinks": np.ones(H),
    },
}  # fmt: skip
NOT_FOR_NUMPY = {"split", "batch_invariant"}


def other(layout, *arrays):
    """bhsd as the layout has it, or back."""
    return [array.swapaxes(-3, -2) if layout == "bshd" else array for array in arrays]


def tensors(library, dtype, random, *shapes, layout="bhsd"):
    arrays = other(layout, *(random.normal(size=shape) for shape in shapes))
    return [library.array(np.ascontiguousarray(array), dtype) for array in arrays]


def check(library, dtype, results, inputs, layout="bhsd", **options):
    o, lse = results
    sums = "float64" if dtype == "float64" else "float32"
    assert library.is_own(o) and library.dtype(o) == dtype and library.dtype(lse) == sums
    plain = {name: value for name, value in options.items() if name not in NOT_FOR_NUMPY}
    expected, expected_lse = reference.attention(
        *other(layout, *map(library.numpy, inputs)), **plain
    )
    tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    np.testing.assert_allclose(*other(layout, library.numpy(o)), expected, **tolerance)
    np.testing.assert_allclose(library.numpy(lse), expected_lse, rtol=1e-5, atol=1e-5)


def attend(library, dtype, inputs, **options):
    owned = {name: own(library, value, dtype) for name, value in options.items()}
    return onepass.attention(*inputs, return_lse=True, **owned)


@dtypes
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_agrees_with_numpy(options, library, dtype, random):
    inputs = tensors(library, dtype, random, (B, H, Q, D), (B, G, K, D), (B, G, K, D))
    check(library, dtype, attend(library, dtype, inputs, **options), inputs, **options)


@layouts
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_of_another_dim(layout, dtype, random):
    """And float64: both on a CPU alone."""
    shapes = ((B, H, Q, D), (B, G, K, D), (B, G, K, 24))
    inputs = other(layout, *(random.normal(size=shape).astype(dtype) for shape in shapes))
    o, lse = onepass.attention(*inputs, layout=layout, causal=True, return_lse=True)
    assert o.dtype == lse.dtype == dtype and o.flags.c_contiguous
    expected, sums = reference.attention(*other(layout, *inputs), causal=True)
    tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    np.testing.assert_allclose(*other(layout, o), expected, **tolerance)
    np.testing.assert_allclose(lse, sums, **tolerance)


@dtypes
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("queries", [1, 70])
@pytest.mark.parametrize("dim", [8, 64, 128])
def test_grouped_heads(kv_heads, queries, dim, library, dtype, random):
    inputs = tensors(
        library,
        dtype,
        random,
        (1, 4, queries, dim),
        (1, kv_heads, 150, dim),
        (1, kv_heads, 150, dim),
    )
    check(library, dtype, attend(library, dtype, inputs, causal=True), inputs, causal=True)


@dtypes
def test_tokens_before_heads(library, dtype, random):
    inputs = tensors(
        library, dtype, random, (B, H, Q, D), (B, G, K, D), (B, G, K, D), layout="bshd"
    )
    # A mask's order stays.
    options = {
        "causal": True,
        "mask": np.arange(H * K).reshape(1, H, 1, K) % 5 != 0,
    }
    results = attend(library, dtype, inputs, layout="bshd", **options)
    assert tuple(results[0].shape) == (B, Q, H, D) and tuple(results[1].shape) == (B, H, Q)
    check(library, dtype, results, inputs, "bshd", **options)


@dtypes
@layouts
@pytest.mark.parametrize(
    "options", [{}, {"causal": True, "window": (2, -1)}, {"mask": np.arange(14) % 5 != 1}]
)
def test_sequences_side_by_side(options, layout, library, dtype, random):
    places = {"q_offsets": np.array([0, 2, 2, 7]), "kv_offsets": np.array([0, 5, 8, 14])}
    shapes = ((H, 7, D), (G, 14, D), (G, 14, D))
    inputs = tensors(library, dtype, random, *shapes, layout=layout)
    results = attend(library, dtype, inputs, layout=layout, **places, **options)
    check(library, dtype, results, inputs, layout, **places, **options)


@dtypes
@layouts
@pytest.mark.parametrize("ragged", [False, True])
def test_pages(ragged, layout, library, dtype, random):
    size, options = (
        4,
        {"causal": True, "lengths": np.array([3, 11]), "pages": np.array([[5, 0, 0], [2, 6, 1]])},
    )
    if ragged:
        options["q_offsets"] = np.array([0, 1, 5])
    shapes = ((H, 5, D) if ragged else (2, H, 3, D), (7, G, size, D), (7, G, size, D))
    inputs = tensors(library, dtype, random, *shapes, layout=layout)
    results = attend(library, dtype, inputs, layout=layout, check_pages=True, **options)
    check(library, dtype, results, inputs, layout, **options)


def test_hidden_keys_reach_nobody(library, random):
    q, k, v = (random.normal(size=(1, 1, n, 8)).astype(np.float32) for n in (2, 6, 6))
    k[0, 0, 4:] = v[0, 0, 4:] = np.nan
    o = onepass.attention(
        *map(library.array, (q, k, v)), lengths=library.array(np.array([4], np.int32))
    )
    np.testing.assert_allclose(
        library.numpy(o), reference.attention(q, k, v, lengths=[4])[0], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    "shapes",
    [((0, 2, 3, 8), (0, 2, 4, 8)), ((1, 2, 0, 8), (1, 2, 4, 8)), ((1, 2, 3, 8), (1, 2, 0, 8))],
)
def test_empty(shapes, library):
    q, k = (library.array(np.zeros(shape, np.float32)) for shape in shapes)
    o, lse = onepass.attention(q, k, k, return_lse=True)
    assert tuple(o.shape) == shapes[0] and (library.numpy(o) == 0).all()
    assert (library.numpy(lse) == -np.inf).all()


def test_strides(random):
    whole = random.normal(size=(3, 4, 12, 40)).astype(np.float32)
    q, k, v = whole[::2, :, ::-2, :16], whole[:2, ::2, 3:, 16:32], whole[1:, 1::2, 3:, 24:]
    out = np.zeros((2, 4, 6, 20), np.float32)
    assert onepass.attention(q, k, v, out=out[..., 2:18]).base is out
    np.testing.assert_allclose(
        out[..., 2:18], reference.attention(q, k, v)[0], rtol=1e-5, atol=1e-5
    )
    assert (out[..., :2] == 0).all() and (out[..., 18:] == 0).all()
    broadcast = np.broadcast_to(k[:, :1], k.shape)  # one head for all, by a stride of 0
    np.testing.assert_allclose(
        onepass.attention(q, broadcast, broadcast),
        onepass.attention(q, k[:, :1], k[:, :1]),
        rtol=1e-5,
        atol=1e-5,
    )


def test_own_outputs_and_dtype(library, random):
    inputs = tensors(library, "float16", random, (B, H, Q, D), (B, G, K, D), (B, G, K, D))
    wide = onepass.attention(*inputs, dtype="float32")
    assert library.dtype(wide) == "float32"
    np.testing.assert_allclose(
        library.numpy(wide), library.numpy(onepass.attention(*inputs)), rtol=2e-3, atol=2e-3
    )
    if library.name != "jax":  # its arrays cannot be written into
        o, lse = (
            library.array(np.zeros((B, H, Q, D), np.float32)),
            library.array(np.zeros((B, H, Q), np.float32)),
        )
        results = onepass.attention(*inputs, return_lse=True, out=(o, lse))
        assert results[0] is o and results[1] is lse
        np.testing.assert_array_equal(library.numpy(o), library.numpy(wide))


@dtypes
@layouts
def test_merge(layout, library, dtype, random):
    inputs = tensors(
        library, dtype, random, (B, H, Q, D), (B, G, K, D), (B, G, K, D), layout=layout
    )
    q, k, v = inputs
    keys = [
        np.s_[:, part] if layout == "bshd" else np.s_[:, :, part]
        for part in (slice(4), slice(4, K))
    ]
    parts = [
        onepass.attention(q, k[p], v[p], layout=layout, dtype="float32", return_lse=True)
        for p in keys
    ]
    results = onepass.merge_attention(*parts[0], *parts[1], layout=layout, dtype=dtype)
    check(library, dtype, results, inputs, layout)


def test_merge_in_place(random):
    o = random.normal(size=(2, 3, 8)).astype(np.float32)
    lse = np.zeros((2, 3), np.float32)
    nothing = np.full((2, 3), -np.inf, np.float32)
    expected = o.copy()
    merged, sums = onepass.merge_attention(o, lse, np.full_like(o, 7), nothing, out=(o, lse))
    assert merged is o and sums is lse
    np.testing.assert_array_equal(o, expected)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": [1.0]}, TypeError, "q: 'list' is not an array"),
        ({"k": None}, ValueError, "k: is missing"),
        ({"q": np.zeros((B, H, Q, D))}, ValueError, "k: dtype f32 is not that of q, f64"),
        (
            {"k": np.zeros((B, G, K, D), np.float16)},
            ValueError,
            "k: dtype f16 is not that of q, f32",
        ),
        (
            {"q": np.zeros((B, H, Q, 12), np.float32)},
            ValueError,
            "q: dim 12 is not a multiple of 8",
        ),
        (
            {"q": np.zeros((Q, D), np.float32)},
            ValueError,
            r"q: shape \[5, 16\] has 2 dimensions, not the 4",
        ),
        ({"q": np.zeros((Q, D), np.float32), "layout": "bshd"}, ValueError, r"q: shape \[5, 16\]"),
        (
            {"q": np.zeros((B, 3, Q, D), np.float32)},
            ValueError,
            "k: 2 heads do not divide the 3 of q",
        ),
        ({"v": np.zeros((B, G, K + 1, D), np.float32)}, ValueError, "v: shape"),
        (
            {"q": np.zeros((B, H, Q, 2 * D), np.float32)[..., ::2]},
            ValueError,
            "q: stride 2 of the last dimension",
        ),
        ({"scale": "1"}, TypeError, "scale: 'str' is not a number"),
        ({"scale": np.inf}, ValueError, "scale: inf is not finite"),
        ({"softcap": None}, TypeError, "softcap: 'NoneType' is not a number"),
        ({"mask": np.zeros((Q, K + 1), bool)}, ValueError, "^mask: shape"),
        ({"mask": 3}, TypeError, "mask: 'int' is not an array"),
        ({"lengths": np.array([1, K + 1])}, ValueError, "lengths: 10 at 1 is not between 0 and 9"),
        ({"window": 3}, TypeError, "window: 'int' is not a pair"),
        ({"alibi": np.zeros(3)}, ValueError, "alibi: shape"),
        ({"sinks": np.zeros(H, np.int32)}, ValueError, "sinks: dtype i32"),
        ({"q_offsets": np.array([0, 1])}, ValueError, "q: shape"),
        ({"pages": np.zeros((B, 2), np.int32)}, ValueError, "lengths: are missing"),
        (
            {"pages": np.full((B, 2), 7, np.int32), "lengths": np.array([1, 1])},
            ValueError,
            r"pages: 7 at \[0, 0\]",
        ),
        ({"check_pages": 1}, TypeError, "check_pages: 'int' is not True or False"),
        ({"split": -1}, ValueError, "split: -1 is negative"),
        ({"split": 0.5}, TypeError, "split: 'float' is not an integer"),
        ({"layout": "sbhd"}, ValueError, "layout: 'sbhd' is not one of bhsd, bshd"),
        ({"dtype": "int64"}, TypeError, "^dtype: 'int64' is not one of"),
        ({"out": np.zeros((B, H, Q, 8), np.float32)}, ValueError, "^out: shape"),
        ({"variant": "quick"}, ValueError, "variant: attention has no 'quick'"),
    ],
)
def test_what_cannot_be(change, error, message):
    arguments = {name: np.zeros((B, G, K, D), np.float32) for name in ("k", "v")}
    arguments |= {"q": np.zeros((B, H, Q, D), np.float32)} | change
    with pytest.raises(error, match=message):
        onepass.attention(**arguments)


def test_merge_of_what_does_not_fit():
    o, lse = np.zeros((2, 3, 4, 8), np.float32), np.zeros((2, 3, 4), np.float32)
    with pytest.raises(ValueError, match="lse_b: shape"):
        onepass.merge_attention(o, lse, o, lse[0])
    with pytest.raises(ValueError, match="lse_a: shape"):
        onepass.merge_attention(o, lse, o, lse, layout="bshd")
    with pytest.raises(ValueError, match="lse_a: is missing"):
        onepass.merge_attention(o, None, o, lse)


def test_what_scaled_dot_product_attention_has_and_attention_has_not():
    q = np.zeros((1, 1, 4, 8), np.float32)
    with pytest.raises(
        NotImplementedError, match="dropout_p: 0.25 is not 0: attention has no dropout"
    ):
        onepass.attention(q, q, q, dropout_p=0.25)
    with pytest.raises(TypeError, match="dropout_p: 'str' is not a number"):
        onepass.attention(q, q, q, dropout_p="none")
    assert onepass.attention(q, q, q, dropout_p=0.0).shape == q.shape
    for name, why in {
        "attn_mask": "is `mask` here",
        "is_causal": "is `causal` here, and aligns the diagonal to the bottom right",
        "enable_gqa": "is not needed",
    }.items():
        with pytest.raises(TypeError, match=f"^{name}: {why}"):
            onepass.attention(q, q, q, **{name: True})
    with pytest.raises(TypeError, match="query: is `q` here"):
        onepass.attention(query=q, key=q, value=q)
    with pytest.raises(TypeError, match=r"attention\(\) got an unexpected keyword argument 'maks'"):
        onepass.attention(q, q, q, maks=None)


def test_out_must_not_be_an_input():
    q = np.zeros((1, 1, 4, 8), np.float32)
    with pytest.raises(ValueError, match="overlaps"):
        onepass.attention(q, q.copy(), q.copy(), out=q)


def test_explain(random):
    q = random.normal(size=(1, 2, 4, 8)).astype(np.float32)
    o, lse = np.full_like(q, 7), np.zeros((1, 2, 4), np.float32)
    told = onepass.explain(onepass.attention, q, q, q, causal=True, out=o)
    assert told.variant in told.plan and told.reasons and told.least_bytes == 4 * q.nbytes
    told = onepass.explain(onepass.merge_attention, o, lse, q, lse, out=o)
    assert told.variant == "merge" and told.least_bytes == 3 * (q.nbytes + lse.nbytes)
    assert (o == 7).all(), "nothing was computed"


def test_batch_invariant(random):
    q, k, v = (random.normal(size=(8, 2, n, 16)).astype(np.float32) for n in (1, 3000, 3000))
    whole = onepass.attention(q, k, v, batch_invariant=True)
    np.testing.assert_array_equal(
        whole[:1], onepass.attention(q[:1], k[:1], v[:1], batch_invariant=True)
    )


def test_a_variant_can_be_forced(random):
    q = random.normal(size=(1, 2, 40, 16)).astype(np.float32)
    np.testing.assert_allclose(
        onepass.attention(q, q, q, variant="cpu_naive"),
        onepass.attention(q, q, q),
        rtol=1e-5,
        atol=1e-5,
    )
