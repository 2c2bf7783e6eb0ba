"""The operators of PyTorch: opcheck, who sees them, torch.compile, CUDA graphs."""

import pytest
from conftest import skip_without_gradients

torch = pytest.importorskip("torch", reason="wants torch")

from watch import Watch  # noqa: E402

import onepass.torch  # noqa: E402
from onepass.torch._schema import Logits, pack_mask  # noqa: E402

PLAIN = Logits.pack(1.0, 1.0, 0.0, None, None, False, None)


@pytest.fixture
def x(device):
    torch.manual_seed(7)
    return torch.randn(5, 6, dtype=torch.float64, device=device, requires_grad=True)


@pytest.fixture
def target(device):
    return torch.tensor([0, 5, 2, -100, 3], device=device)


def operators(device, x, target):
    """Every operator with arguments for it."""
    ops = torch.ops.onepass
    other = Logits.pack(
        2.0, torch.full((5,), 0.7, device=device), 3.0, x.detach() > -1, None, True, (2, -1)
    )
    y, dy = x.detach().softmax(-1), torch.randn_like(x)
    loss = (None, -100, 0.1, 0.0, "mean", None, False)
    weighted = (torch.linspace(0, 2, 6, device=device), *loss[1:])
    lse = x.detach().logsumexp(-1)
    one = torch.ones((), dtype=x.dtype, device=device)
    plain = x.detach()
    float32 = plain.float()
    q, k = torch.randn(2, 4, 3, 8, device=device), torch.randn(2, 2, 6, 8, device=device)
    tokens = torch.tensor([0, 1, 3], device=device)
    heads = torch.ones(4, device=device)
    seen, some = (
        pack_mask(None, None, True, None),
        pack_mask((k[0, 0, 0] > 0)[:6], tokens[1:], False, (2, -1)),
    )
    nothing = (None,) * 5
    bias, sinks = torch.randn(3, 6, device=device), torch.randn(4, device=device)
    learned = [each.clone().requires_grad_() for each in (q, k, k + 1, bias, sinks)]
    return {
        "softmax": (ops.softmax, (x, -1, *PLAIN, None, False)),
        "softmax, options": (ops.softmax, (x, -1, *other, torch.float32, True)),
        "softmax, transposed": (ops.softmax, (x.T, -1, *PLAIN, None, False)),
        "softmax, every other": (ops.softmax, (x[:, ::2], -1, *PLAIN, None, False)),
        "log_softmax": (ops.log_softmax, (x, 0, *PLAIN, None, False)),
        "logsumexp": (ops.logsumexp, (x, -1, *PLAIN, None, False)),
        "softmax_backward": (ops.softmax_backward, (y, dy, None, -1, *PLAIN, None, False)),
        "log_softmax_backward": (
            ops.log_softmax_backward,
            (y.log(), dy, None, -1, *PLAIN, None, False),
        ),
        "cross_entropy": (ops.cross_entropy, (x, target, -1, *PLAIN, *loss)),
        "cross_entropy_backward": (
            ops.cross_entropy_backward,
            (plain, target, one, lse, -1, *PLAIN, *loss),
        ),
        "cross_entropy, weights": (ops.cross_entropy, (x, target, -1, *PLAIN, *weighted)),
        "cross_entropy, probabilities": (ops.cross_entropy, (x, y, -1, *PLAIN, *weighted)),
        "cross_entropy_backward, probabilities": (
            ops.cross_entropy_backward,
            (plain, y, one, lse, -1, *PLAIN, *weighted),
        ),
        "softmax_topk": (
            ops.softmax_topk,
            (float32, 2, "probability", True, *PLAIN, torch.float16, torch.int32),
        ),
        "sample": (
            ops.sample,
            (float32, 3, None, 0.9, None, 0.0, None, 7, None, 0, None, *PLAIN, torch.int64),
        ),
        "attention": (
            ops.attention,
            (q, k, k, None, 0.0, *seen, *nothing, False, 0, "bhsd", None, False),
        ),
        "attention, options": (
            ops.attention,
            (
                q,
                k,
                k,
                0.5,
                3.0,
                *some,
                heads,
                heads,
                None,
                None,
                None,
                True,
                4,
                "bhsd",
                torch.float16,
                True,
            ),
        ),
        "attention, side by side": (
            ops.attention,
            (q[0].transpose(0, 1), *(k.transpose(1, 2),) * 2, None, 0.0, *seen, None, None, tokens)
            + (None, None, False, 0, "bshd", None, False),
        ),
        "attention, gradients": (
            ops.attention,
            (*learned[:3], 0.5, 3.0, None, learned[3], *seen[2:], heads, learned[4], *nothing[:3])
            + (False, 0, "bhsd", None, False),
        ),
        "attention_backward": (
            ops.attention_backward,
            (q, k, k, q, q[..., 0], q, None, None, 0.0, *seen, *nothing[:4], "bhsd", False, False),
        ),
        "attention_backward, options": (
            ops.attention_backward,
            (q, k, k, q, q[..., 0], q, q[..., 1], 0.5, 3.0, None, learned[3].detach(), *seen[2:])
            + (heads, heads, None, None, "bhsd", True, True),
        ),
        "merge_attention": (
            ops.merge_attention,
            (q, q[..., 0], q + 1, q[..., 0], "bhsd", torch.float16),
        ),
        "merge_attention, gradients": (
            ops.merge_attention,
            (learned[0], q[..., 0], q + 1, q[..., 0].clone().requires_grad_(), "bhsd", None),
        ),
        "merge_attention_backward": (
            ops.merge_attention_backward,
            (q, q[..., 0], q + 1, q[..., 0], q, q[..., 1], "bhsd"),
        ),
        "gate": (ops.gate, (float32, 2, "sigmoid", None, True, 1.0, None, torch.int64)),
    }


@pytest.mark.parametrize(
    "name", operators("cpu", torch.zeros(5, 6), torch.zeros(5, dtype=torch.int64))
)
def test_opcheck(name, device, x, target):
    if "attention" in name and ("gradients" in name or "backward" in name):
        skip_without_gradients(device)
    op, arguments = operators(device, x, target)[name]
    torch.library.opcheck(op.default, arguments)


def test_who_watches_sees_operators(device, x):
    """Calls go straight to the library; not where a mode, a profiler or a tensor without memory
    asks for operators."""
    plain = x.detach()
    straight = onepass.torch.softmax(plain, dim=0)
    with Watch() as watch:
        watched = onepass.torch.softmax(plain, dim=0)
    assert watch.seen == ["onepass.softmax.default"] and torch.equal(straight, watched)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        onepass.torch.softmax(plain)
    assert any(event.name == "onepass::softmax" for event in profile.events())
    assert onepass.torch.softmax(plain.to("meta")).is_meta


def test_what_has_no_memory_meets_what_has(device, x, target):
    """PyTorch takes the way of the tensor without, whose results nobody writes."""
    plain = x.detach()
    with pytest.raises(ValueError, match=f"target: is on meta, x on {device}"):
        onepass.torch.cross_entropy(plain, target.to("meta"))
    with pytest.raises(ValueError, match=f"lengths: is on meta, x on {device}"):
        onepass.torch.softmax(plain, lengths=target.to("meta"))
    with pytest.raises(ValueError, match=f"lengths: is on {device}.*, x on meta"):
        onepass.torch.topk(plain.to("meta"), 2, lengths=target)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic, device):
    weight = torch.linspace(0, 2, 10, device=device)

    def step(x, target):
        y = onepass.torch.softmax(x * 2, temperature=0.7, causal=True)
        values, indices = onepass.torch.topk(y.detach(), 2)
        token = onepass.torch.sample(x.detach(), top_k=5, seed=target)
        weights, _ = onepass.torch.gate(x.detach(), 2)
        loss = onepass.torch.cross_entropy(x, target) + onepass.torch.logsumexp(x).mean()
        loss = loss + onepass.torch.cross_entropy(x, x.detach().softmax(-1), weight=weight)
        return loss + y.sum() + values.sum() + weights.sum(), indices, token

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic)
    for rows in (4, 6):
        x = torch.randn(rows, 10, device=device)
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        target = torch.arange(rows, device=device)
        expected, got = step(mine, target), compiled(theirs, target)
        for a, b in zip(expected, got):
            torch.testing.assert_close(a, b)
        expected[0].backward()
        got[0].backward()
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU")
@pytest.mark.parametrize("shape", [(64, 1000), (1, 1 << 20)])  # the second needs workspace
def test_cuda_graph(shape):
    x = torch.randn(shape, device="cuda")
    for function in (
        onepass.softmax,
        onepass.torch.softmax,
        lambda x: onepass.topk(x, 50)[0],
        lambda x: onepass.sample(x, seed=3),
    ):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = function(x)
        for _ in range(2):
            x.normal_()
            graph.replay()
            torch.testing.assert_close(y, function(x))
