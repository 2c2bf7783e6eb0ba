"""The gradients of attention in PyTorch: beside a plain float64 formula, by gradcheck, compiled,
checkpointed, through merges."""

import functools

import plain_attention
import pytest
from conftest import skip_without_gradients

torch = pytest.importorskip("torch", reason="wants torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch.utils.checkpoint import checkpoint  # noqa: E402
from watch import Watch  # noqa: E402

import onepass.torch  # noqa: E402

B, H, Q, K, D = 2, 4, 5, 9, 16
BOUNDS = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}


@pytest.fixture(autouse=True)
def _on_this_device(request):
    if "device" in request.fixturenames:
        skip_without_gradients(request.getfixturevalue("device"))


def numbers(*shape, device="cpu", dtype=torch.float64, seed=0):
    """The same ones for a shape and a seed on every device."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(device, dtype)


def options_of(device):
    """Those that require grad have gradients that are compared, too."""
    make = functools.partial(numbers, device=device)
    grad = lambda *shape: make(*shape).requires_grad_()  # noqa: E731
    keep = torch.arange(B * H * Q * K, device=device).view(B, H, Q, K) % 4 != 0
    lengths = torch.tensor([4, 9], device=device)
    return {
        "plain": {},
        "scale": {"scale": 0.5},
        "softcap": {"softcap": 1.5, "scale": 2.0},
        "causal": {"causal": True},
        "window": {"window": (2, 1)},
        "causal window": {"causal": True, "window": (3, -1)},
        "lengths, causal": {"lengths": lengths, "causal": True},
        "no keys": {"lengths": torch.tensor([0, 9], device=device)},
        "boolean": {"mask": keep},
        "additive": {"mask": grad(B, H, Q, K)},
        "additive, a constant": {"mask": make(H, Q, K)},
        "additive, per key": {"mask": grad(K)},
        "additive, per query": {"mask": grad(B, 1, Q, 1)},
        "both": {"mask": (keep, grad(H, 1, K)), "softcap": 3.0},
        "alibi": {"alibi": make(H).abs(), "causal": True},
        "sinks": {"sinks": grad(H), "causal": True},
        "all": {
            "scale": 0.7, "softcap": 3.0, "lengths": lengths, "causal": True, "window": (4, 0),
            "mask": (keep, grad(1, H, 1, K)), "alibi": make(B, H).abs(), "sinks": grad(H),
        },
    }  # fmt: skip


def inputs(device, dtype, kv_heads=2, queries=Q, keys=K, dim=D, heads=H):
    shapes = ((B, heads, queries, dim), (B, kv_heads, keys, dim), (B, kv_heads, keys, dim))
    return [
        numbers(*shape, device=device, seed=seed).to(dtype).requires_grad_()
        for seed, shape in enumerate(shapes)
    ]


def leaves(tensors, options):
    """All that has a gradient."""
    mask = options.get("mask")
    more = [*(mask if isinstance(mask, tuple) else (mask,)), options.get("sinks")]
    return [*tensors, *(t for t in more if t is not None and t.requires_grad)]


def gradients(results, of):
    """Of o and lse with some weights; a query that sees nothing has no lse to weigh."""
    o, lse = results
    o_weights, lse_weights = (numbers(*t.shape, device=t.device, seed=9) for t in (o, lse))
    finite = lse.detach().isfinite()
    loss = (o.double() * o_weights).sum() + (lse.double() * lse_weights)[finite].sum()
    return torch.autograd.grad(loss, of)


def check(tensors, options, turn=lambda t: t, **ours):
    """Ours beside the formula's, in the dtype of ours."""
    wide = [t.detach().double().requires_grad_() for t in tensors]
    expected = plain_attention.attention(*wide, **options)
    o, lse = onepass.torch.attention(*map(turn, tensors), return_lse=True, **ours, **options)
    got = gradients((turn(o), lse), leaves(tensors, options))
    for mine, theirs in zip(got, gradients(expected, leaves(wide, options))):
        bound = BOUNDS[tensors[0].dtype] * max(1, float(theirs.abs().max()))
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=bound)


def dtype_on(device):
    return torch.float64 if device == "cpu" else torch.float32


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("name", options_of("cpu"))
def test_as_the_formula(name, kv_heads, device):
    check(inputs(device, dtype_on(device), kv_heads), options_of(device)[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_dtypes(causal, dtype, device):
    tensors = inputs(device, dtype, 2, 70, 130, 64)
    check(tensors, {"causal": causal})
    check(tensors, {"causal": causal}, dtype=torch.float32)


@pytest.mark.parametrize("name", ["plain", "all"])
def test_tokens_before_heads(name, device):
    turn = lambda t: t.transpose(1, 2)  # noqa: E731
    check(inputs(device, dtype_on(device)), options_of(device)[name], turn, layout="bshd")


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("name", ["plain", "causal", "window", "mask", "all"])
def test_sequences_side_by_side(name, kv_heads, layout, device):
    dtype = dtype_on(device)
    q, k, v = (
        numbers(heads, tokens, D, device=device, seed=seed).to(dtype).requires_grad_()
        for seed, (heads, tokens) in enumerate(((H, 7), (kv_heads, 14), (kv_heads, 14)))
    )
    places = {
        "q_offsets": torch.tensor([0, 2, 2, 7], device=device),
        "kv_offsets": torch.tensor([0, 5, 8, 14], device=device),
    }
    mask = numbers(1, H, 7, 14, device=device).requires_grad_()
    options = {
        "plain": {},
        "causal": {"causal": True},
        "window": {"window": (2, 0), "sinks": numbers(H, device=device).requires_grad_()},
        "mask": {"mask": mask},
        "all": {
            "mask": mask, "causal": True, "softcap": 2.0, "alibi": numbers(H, device=device).abs(),
            "lengths": torch.tensor([4, 0, 6], device=device),
        },
    }[name]  # fmt: skip
    turn = (lambda t: t.transpose(0, 1)) if layout == "bshd" else (lambda t: t)
    check([q, k, v], places | options, turn, layout=layout)


@pytest.mark.parametrize(
    "name", ["plain", "softcap", "causal", "additive, per key", "sinks", "all", "no keys"]
)
def test_gradcheck(name):
    """Of o and lse, and of what is asked for alone: each input without the others."""
    options = options_of("cpu")[name]
    tensors = inputs("cpu", torch.float64, 2, 3, 9, 8)
    options = {n: _short(o) for n, o in options.items()}
    lse = name != "no keys"  # whose −inf has no numerical derivative
    given = leaves(tensors, options)

    def function(*_):
        return onepass.torch.attention(*tensors, return_lse=lse, **options)

    assert torch.autograd.gradcheck(function, given)


def _short(option):
    """For three queries."""
    if isinstance(option, tuple) and isinstance(option[0], torch.Tensor):
        return tuple(map(_short, option))
    if isinstance(option, torch.Tensor) and option.dim() == 4 and option.shape[2] == Q:
        return option.detach()[:, :, :3].requires_grad_(option.requires_grad)
    return option


@pytest.mark.parametrize("wanted", ["q", "k", "v", "mask", "sinks"])
def test_one_gradient_alone(wanted, device):
    q, k, v = (t.detach() for t in inputs(device, dtype_on(device)))
    given = {"q": q, "k": k, "v": v, "mask": numbers(Q, 1, device=device)}
    given["sinks"] = numbers(H, device=device)
    given[wanted].requires_grad_()
    o = onepass.torch.attention(**given)
    assert o.requires_grad
    wide = {name: t.double() for name, t in given.items()}
    expected, _ = plain_attention.attention(**wide)
    torch.testing.assert_close(
        torch.autograd.grad(o.square().sum(), given[wanted])[0],
        torch.autograd.grad(expected.square().sum(), given[wanted])[0],
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_of_the_lse_alone(device):
    tensors = inputs(device, dtype_on(device))
    _, lse = onepass.torch.attention(*tensors, return_lse=True)
    wide = [t.detach().double().requires_grad_() for t in tensors]
    _, expected = plain_attention.attention(*wide)
    got = torch.autograd.grad(lse.square().sum(), tensors)
    for mine, theirs in zip(got, torch.autograd.grad(expected.square().sum(), wide[:2])):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-5)
    assert not got[2].any()


def test_an_expanded_gradient(device):
    """The gradient of a sum has strides of 0."""
    q, k, v = inputs(device, dtype_on(device))
    (expanded,) = torch.autograd.grad(onepass.torch.attention(q, k, v).sum(), v)
    o = onepass.torch.attention(q, k, v)
    (dense,) = torch.autograd.grad(o, v, torch.ones_like(o))
    torch.testing.assert_close(expanded, dense, rtol=0, atol=0)


def test_what_has_no_gradient(device):
    q, k, v = inputs(device, dtype_on(device))
    slopes = torch.ones(H, device=device, requires_grad=True)
    with pytest.raises(NotImplementedError, match="alibi: requires grad, but the slopes have no"):
        onepass.torch.attention(q, k, v, alibi=slopes)
    pages = {
        "pages": torch.zeros(B, 1, dtype=torch.int32, device=device),
        "lengths": torch.ones(B, dtype=torch.int32, device=device),
    }
    for watching in (torch.enable_grad(), Watch()):
        with watching, pytest.raises(NotImplementedError, match="^pages: keys in pages have no"):
            onepass.torch.attention(q, k, v, **pages)
    with pytest.raises(NotImplementedError, match="second derivatives are not implemented"):
        o = onepass.torch.attention(q, k, v)
        torch.autograd.grad(o.square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="dropout_p: 0.1"):
        onepass.torch.attention(q, k, v, dropout_p=0.1)


def test_nothing_is_kept_without_a_gradient(device):
    q, k, v = inputs(device, dtype_on(device))
    with torch.no_grad():
        assert onepass.torch.attention(q, k, v).grad_fn is None
    o = onepass.torch.attention(*(t.detach() for t in (q, k, v)))
    assert o.grad_fn is None and not o.requires_grad


def test_the_short_way_is_the_operators(device):
    tensors = inputs(device, dtype_on(device))
    options = options_of(device)["all"]
    of = leaves(tensors, options)
    short = gradients(onepass.torch.attention(*tensors, return_lse=True, **options), of)
    with Watch() as watch:
        watched = gradients(onepass.torch.attention(*tensors, return_lse=True, **options), of)
    assert {"onepass.attention.default", "onepass.attention_backward.default"} <= set(watch.seen)
    for mine, theirs in zip(short, watched):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic, device):
    def step(q, k, v, mask, sinks, lengths):
        o, lse = onepass.torch.attention(
            q * 2, k, v, causal=True, lengths=lengths, mask=mask, sinks=sinks, return_lse=True
        )
        left = onepass.torch.attention(q, k[:, :, :2], v[:, :, :2], return_lse=True)
        right = onepass.torch.attention(q, k[:, :, 2:], v[:, :, 2:], return_lse=True)
        merged, sums = onepass.torch.merge_attention(*left, *right)
        return (o + merged.square()).sum() + (lse * sums).sum()

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic)
    for keys in (6, 9):
        tensors = inputs(device, dtype_on(device), keys=keys)
        tensors += [numbers(keys, device=device), numbers(H, device=device)]
        tensors = [t.to(dtype_on(device)).detach().requires_grad_() for t in tensors]
        lengths = torch.tensor([6, keys], device=device)
        expected, got = step(*tensors, lengths), compiled(*tensors, lengths)
        torch.testing.assert_close(got, expected)
        for mine, theirs in zip(
            torch.autograd.grad(got, tensors), torch.autograd.grad(expected, tensors)
        ):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant, compiled, device):
    if compiled and reentrant:
        pytest.skip("torch.compile has no reentrant checkpoints")
    tensors = inputs(device, dtype_on(device))

    def layer(q, k, v):
        return onepass.torch.attention(q * 2, k, v, causal=True).square()

    def saving(q, k, v):
        return checkpoint(layer, q, k, v, use_reentrant=reentrant)

    run = torch.compile(saving, fullgraph=True) if compiled else saving
    kept = torch.autograd.grad(layer(*tensors).sum(), tensors)
    # Reentrant checkpoints know backward() alone.
    run(*tensors).sum().backward()
    for mine, theirs in zip(tensors, kept):
        torch.testing.assert_close(mine.grad, theirs)


def test_merge_gradcheck():
    shapes = ((2, 3, 8), (2, 3)) * 2
    given = [numbers(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes)]
    assert torch.autograd.gradcheck(onepass.torch.merge_attention, given)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_through_a_merge(layout, device):
    """Keys in two places have the gradients that they have in one."""
    q, k, v = inputs(device, dtype_on(device))
    turn = (lambda t: t.transpose(1, 2)) if layout == "bshd" else (lambda t: t)
    parts = [
        onepass.torch.attention(
            turn(q), turn(k[:, :, s]), turn(v[:, :, s]), layout=layout, return_lse=True
        )
        for s in (slice(4), slice(4, K))
    ]
    o, lse = onepass.torch.merge_attention(*parts[0], *parts[1], layout=layout)
    whole = onepass.torch.attention(q, k, v, return_lse=True)
    merged = gradients((turn(o), lse), (q, k, v))
    for mine, theirs in zip(merged, gradients(whole, (q, k, v))):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_of_one_result_of_a_merge(device):
    dtype = dtype_on(device)
    a, b = (numbers(2, 3, 8, device=device, dtype=dtype, seed=n).requires_grad_() for n in (1, 2))
    lse_a, lse_b = (numbers(2, 3, device=device, seed=n).to(dtype).requires_grad_() for n in (3, 4))
    given = (a, lse_a, b, lse_b)
    o, lse = onepass.torch.merge_attention(*given)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.autograd.grad(o.square().sum(), a, create_graph=True, retain_graph=True)
    weights = torch.stack([lse_a, lse_b]).softmax(0)[..., None]
    expected = weights[0] * a + weights[1] * b
    for mine, theirs in zip(
        torch.autograd.grad(o.square().sum(), given, retain_graph=True),
        torch.autograd.grad(expected.square().sum(), given),
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    of_sums = torch.autograd.grad(lse.sum(), given)
    assert not of_sums[0].any() and not of_sums[2].any()
    torch.testing.assert_close(of_sums[1] + of_sums[3], torch.ones_like(lse))


def test_as_sdpa(device):
    q, k, v = inputs(device, torch.float32, 2, 70, 70, 64)
    weights = numbers(B, H, 70, 64, device=device, dtype=torch.float32)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    o = onepass.torch.attention(q, k, v, causal=True)
    for mine, theirs in zip(
        torch.autograd.grad((o * weights).sum(), (q, k, v)),
        torch.autograd.grad((expected * weights).sum(), (q, k, v)),
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU")
def test_cuda_graph():
    skip_without_gradients("cuda")
    q, k, v = inputs("cuda", torch.bfloat16, 2, 256, 256, 64)
    d_o = torch.ones_like(q)
    onepass.torch.attention(q, k, v, causal=True).backward(d_o)  # on a stream of its own first
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = onepass.torch.attention(q, k, v, causal=True)
        got = torch.autograd.grad(o, (q, k, v), d_o)
    for _ in range(2):
        with torch.no_grad():
            q.normal_()
        graph.replay()
        o = onepass.torch.attention(q, k, v, causal=True)
        for mine, theirs in zip(got, torch.autograd.grad(o, (q, k, v), d_o)):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
