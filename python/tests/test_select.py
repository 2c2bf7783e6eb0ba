"""topk, softmax_topk, sample and gate."""

import numpy as np
import pytest
import reference
from conftest import TOLERANCE

import onepass


@pytest.mark.parametrize("k", [1, 3, 17])
def test_topk(k, library, dtype, random):
    x = library.array(random.normal(size=(2, 4, 17)), dtype)
    if library.device == "cuda" and dtype == "float64":
        with pytest.raises(NotImplementedError, match="it takes f32, f16 and bf16"):
            onepass.topk(x, k)
        return
    values, indices = onepass.topk(x, k)
    expected, places = reference.topk(library.numpy(x), k)
    np.testing.assert_array_equal(library.numpy(indices), places)
    np.testing.assert_allclose(library.numpy(values), expected, rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("values", ["probability", "log_probability", "logit", "renormalized"])
def test_softmax_topk(values, library, random):
    x = random.normal(size=(5, 30)).astype(np.float32)
    options = {"temperature": 0.5, "lengths": np.full(5, 20, np.int32)}
    own = {"temperature": 0.5, "lengths": library.array(options["lengths"])}
    best, indices = onepass.softmax_topk(library.array(x), 4, values=values, **own)
    logits, places = reference.topk(x, 4, **options)
    log_probability = logits - reference.logsumexp(x, **options)[:, None]
    expected = {
        "probability": np.exp(log_probability),
        "log_probability": log_probability,
        "logit": logits,
        "renormalized": reference.softmax(logits),
    }[values]
    np.testing.assert_array_equal(library.numpy(indices), places)
    np.testing.assert_allclose(library.numpy(best), expected, rtol=1e-5, atol=1e-6)


def test_a_target_and_the_lse_come_along(library, random):
    x = random.normal(size=(3, 20)).astype(np.float32)
    target = np.array([0, 7, 19], np.int32)
    _, _, lse, logprob, rank = onepass.topk(
        library.array(x), 2, target=library.array(target), return_lse=True, index_dtype="int32"
    )
    own = x[np.arange(3), target]
    np.testing.assert_allclose(library.numpy(lse), reference.logsumexp(x), rtol=1e-6)
    np.testing.assert_allclose(library.numpy(logprob), own - reference.logsumexp(x), rtol=1e-5)
    np.testing.assert_array_equal(library.numpy(rank), (x > own[:, None]).sum(-1))
    assert library.dtype(rank) == "int32"


def test_ties_and_order():
    values, indices = onepass.topk(np.array([1.0, 2.0, 2.0, 1.0, 3.0]), 4)
    assert indices.tolist() == [4, 1, 2, 0]
    assert onepass.topk(np.array([1.0, 2.0, 2.0, 1.0, 3.0]), 3, sorted=False)[1].tolist() == [
        1,
        2,
        4,
    ]


@pytest.mark.parametrize("k", [0, -1, 4])
def test_k_must_be_there(k):
    with pytest.raises(ValueError, match=f"k: {k} is not between 1 and 3"):
        onepass.topk(np.zeros((2, 3)), k)


def test_greedy(library, random):
    x = random.normal(size=(6, 50)).astype(np.float32)
    token, logprob, valid = onepass.sample(
        library.array(x), temperature=0.0, return_logprob=True, return_valid=True
    )
    np.testing.assert_array_equal(library.numpy(token), x.argmax(-1))
    np.testing.assert_allclose(
        library.numpy(logprob), x.max(-1) - reference.logsumexp(x), rtol=1e-5, atol=1e-6
    )
    assert library.numpy(valid).all()


def test_samples_are_spread_as_the_probabilities(library):
    x = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    tokens = library.numpy(onepass.sample(library.array(np.tile(x, (20000, 1))), seed=3))
    np.testing.assert_allclose(np.bincount(tokens) / 20000, [0.5, 0.3, 0.2], atol=0.02)


def test_filters(library):
    x = library.array(np.tile(np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32)), (2000, 1)))

    def seen(**options):
        return set(library.numpy(onepass.sample(x, seed=1, **options)).tolist())

    assert seen() == {0, 1, 2, 3}
    assert seen(top_k=2) == {0, 1}
    assert seen(top_p=0.75) == {0, 1}
    assert seen(min_p=0.2) == {0, 1, 2}
    assert seen(mask=library.array(np.array([False, True, True, False]))) == {1, 2}


def test_a_draw_is_its_seeds_and_offsets(library, random):
    x = library.array(random.normal(size=(4, 1000)).astype(np.float32))
    draw = lambda **options: library.numpy(onepass.sample(x, **options)).tolist()  # noqa: E731
    assert draw(seed=5) == draw(seed=5)
    assert draw(seed=5) != draw(seed=6)
    assert draw(seed=5) != draw(seed=5, offset=1)
    seeds = np.arange(4, dtype=np.int32)
    assert (
        draw(seed=library.array(seeds))[1]
        == draw(seed=library.array(seeds[::-1].copy() * 0 + 1))[1]
    )


@pytest.mark.parametrize("name", ["seed", "offset"])
def test_a_seed_is_64_bits(name, library):
    x = library.array(np.zeros((1, 4096), np.float32))
    draw = lambda value: library.numpy(onepass.sample(x, **{name: value})).tolist()  # noqa: E731
    assert draw(2**64 - 1) == draw(-1)
    assert draw(2**63) == draw(-(2**63))
    assert draw(2**63 + 1) != draw(2**63 - 1)
    rows = np.array([2**64 - 3], np.uint64)
    if library.name != "cupy":
        assert draw(library.array(rows)) == draw(library.array(rows.view(np.int64)))
    for beyond in (2**64, -(2**63) - 1):
        with pytest.raises(
            ValueError, match=f"{name}: {beyond} is not between -2\\^63 and 2\\^64 - 1"
        ):
            onepass.sample(x, **{name: beyond})
    with pytest.raises(TypeError, match="top_k: dtype uint64"):
        onepass.sample(x, top_k=library.array(rows))


def test_nothing_to_choose_from():
    x = np.array([[np.nan, 1], [-np.inf, -np.inf], [0, 1]], np.float32)
    token, valid = onepass.sample(x, temperature=0.0, return_valid=True)
    assert token.tolist() == [-1, -1, 1]
    assert valid.tolist() == [0, 0, 1]


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
@pytest.mark.parametrize("renormalize", [False, True])
def test_gate(score, renormalize, library, random):
    scores = random.normal(size=(7, 16)).astype(np.float32)
    bias = random.normal(size=16).astype(np.float32)
    weights, experts = onepass.gate(
        library.array(scores),
        3,
        score=score,
        bias=library.array(bias),
        renormalize=renormalize,
        scale=2.0,
    )
    each = (
        reference.softmax(scores)
        if score == "softmax"
        else 1 / (1 + np.exp(-scores.astype(np.float64)))
    )
    chosen = np.argsort(-(each + bias), axis=-1, kind="stable")[:, :3]
    expected = np.take_along_axis(each, chosen, -1)
    if renormalize:
        expected = expected / expected.sum(-1, keepdims=True)
    np.testing.assert_array_equal(library.numpy(experts), chosen)
    np.testing.assert_allclose(library.numpy(weights), 2 * expected, rtol=1e-5)
