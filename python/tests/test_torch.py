"""The ops in PyTorch: gradients, values as PyTorch has them, modules."""

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="wants torch")

import torch.nn.functional as F  # noqa: E402, N812
from watch import Watch  # noqa: E402

import onepass.torch  # noqa: E402


@pytest.fixture
def x(device):
    torch.manual_seed(7)
    return torch.randn(5, 6, dtype=torch.float64, device=device, requires_grad=True)


@pytest.fixture
def target(device):
    return torch.tensor([0, 5, 2, -100, 3], device=device)


def row_options(device):
    rows = torch.linspace(0.5, 2, 5, dtype=torch.float64, device=device)
    keep = torch.arange(6, device=device) != 2
    bias = torch.linspace(-1, 1, 6, dtype=torch.float64, device=device)
    return [
        {},
        {"scale": 2.0, "temperature": rows},
        {"softcap": 3.0, "scale": rows},
        {"mask": keep, "lengths": torch.tensor([6, 3, 4, 5, 6], device=device)},
        {"mask": (keep, bias), "temperature": 0.7},
    ]


@pytest.mark.parametrize("case", range(5))
@pytest.mark.parametrize("name", ["softmax", "logsumexp"])
def test_gradients(name, case, device, x):
    options = row_options(device)[case]
    function = getattr(onepass.torch, name)
    assert torch.autograd.gradcheck(lambda x: function(x, **options), (x,))
    if not options:
        assert torch.autograd.gradcheck(lambda x: function(x, 0), (x,))


# Not those that hide: their −inf has no numerical derivative.
@pytest.mark.parametrize("case", range(3))
def test_gradient_of_log_softmax(case, device, x):
    options = row_options(device)[case]
    assert torch.autograd.gradcheck(lambda x: onepass.torch.log_softmax(x, **options), (x,))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2, "z_loss": 0.1}, {"softcap": 3.0}])
def test_gradient_of_cross_entropy(reduction, options, x, target):
    def loss(x):
        return onepass.torch.cross_entropy(x, target, reduction=reduction, **options)

    assert torch.autograd.gradcheck(loss, (x,))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_cross_entropy_as_torch_does(kind, weighs, smoothing, reduction, device):
    """With class weights and probabilities; the classes are the second dimension of three, of four
    and the only one."""
    torch.manual_seed(5)
    for shape in ((4, 7), (3, 5, 2, 4), (6,)):
        x = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
        dim = min(1, len(shape) - 1)
        rows = shape[:dim] + shape[dim + 1 :]
        target = torch.randint(0, shape[dim], rows, device=device)
        if kind == "indices" and rows:
            target.view(-1)[1] = -100
        if kind == "probabilities":
            target = torch.randn(shape, dtype=torch.float64, device=device).softmax(dim)
        options = {"reduction": reduction, "label_smoothing": smoothing}
        if weighs:
            options["weight"] = torch.rand(shape[dim], dtype=torch.float64, device=device)
        ours, theirs = (
            f(x, target, **options) for f in (onepass.torch.cross_entropy, F.cross_entropy)
        )
        torch.testing.assert_close(ours, theirs)
        upstream = torch.randn_like(ours)
        torch.testing.assert_close(
            *(torch.autograd.grad(loss, x, upstream)[0] for loss in (ours, theirs))
        )


def test_gradient_of_weights_and_probabilities(device, x):
    weight = torch.linspace(0, 2, 6, dtype=x.dtype, device=device)
    options = {"weight": weight, "label_smoothing": 0.1, "z_loss": 0.1, "softcap": 3.0}
    for target in (torch.arange(5, device=device), torch.rand(5, 6, dtype=x.dtype, device=device)):
        assert torch.autograd.gradcheck(
            lambda x: onepass.torch.cross_entropy(x, target, **options),  # noqa: B023
            (x,),
        )
    for name in ("target", "weight"):
        given = {"target": torch.zeros_like(x), "weight": weight}
        given[name] = given[name].detach().requires_grad_()
        with pytest.raises(NotImplementedError, match=f"{name}: requires grad"):
            onepass.torch.cross_entropy(x, **given)


def test_as_torch_does(device, x, target):
    torch.testing.assert_close(onepass.torch.softmax(x, 0), F.softmax(x, 0))
    torch.testing.assert_close(onepass.torch.log_softmax(x, 1), F.log_softmax(x, 1))
    torch.testing.assert_close(onepass.torch.logsumexp(x, 1), x.logsumexp(1))
    for reduction in ("none", "sum", "mean"):
        options = {"reduction": reduction, "label_smoothing": 0.1}
        ours, theirs = (
            f(x, target, **options) for f in (onepass.torch.cross_entropy, F.cross_entropy)
        )
        torch.testing.assert_close(ours, theirs)
        (mine,) = torch.autograd.grad(ours.sum(), x)
        (other,) = torch.autograd.grad(theirs.sum(), x)
        torch.testing.assert_close(mine, other)
    image = torch.randn(2, 4, 3, 5, device=device)  # classes are the second dimension
    classes = torch.randint(0, 4, (2, 3, 5), device=device)
    torch.testing.assert_close(
        onepass.torch.cross_entropy(image, classes), F.cross_entropy(image, classes)
    )


EMPTY = [(), (1,), (0,), (0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 2, 3)]


@pytest.mark.parametrize("shape", EMPTY, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_scalars_and_nothing(name, shape, device):
    """As PyTorch has it, in every dimension and with options; the operators' own way, too."""
    ours, theirs = getattr(onepass.torch, name), getattr(torch, name)
    rows = torch.full((), 0.5, dtype=torch.float64, device=device)
    for dim in range(-max(len(shape), 1), max(len(shape), 1)):
        for options in (
            {},
            {"scale": rows + 1, "temperature": rows, "softcap": 3.0},
            {"softcap": 3.0},
        ):
            x = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
            z = (
                3 * torch.tanh(x * options.get("scale", 1) / 3) / options.get("temperature", 1)
                if options
                else x
            )
            expected = theirs(z, dim)
            for mode in (contextlib.nullcontext(), Watch()):
                with mode:
                    y = ours(x, dim, **options)
                    torch.testing.assert_close(y, expected)
                    weights = torch.ones_like(y) + torch.arange(y.numel(), device=device).view_as(y)
                    mine = torch.autograd.grad(y, x, weights)
                torch.testing.assert_close(
                    mine, torch.autograd.grad(expected, x, weights, retain_graph=True)
                )


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(3,), (0, 3), (2, 3, 0), (0, 3, 2), (1, 1)], ids=str)
def test_losses_of_nothing(shape, reduction, device):
    x = torch.randn(shape, dtype=torch.float64, device=device, requires_grad=True)
    target = torch.zeros(shape[:1] * (len(shape) > 1) + shape[2:], dtype=torch.int64, device=device)
    ours, theirs = (
        f(x, target, reduction=reduction) for f in (onepass.torch.cross_entropy, F.cross_entropy)
    )
    torch.testing.assert_close(ours, theirs.nan_to_num(0))  # the mean of nothing is 0 here
    (mine,) = torch.autograd.grad(ours, x, torch.ones_like(ours))
    (other,) = torch.autograd.grad(theirs, x, torch.ones_like(theirs))
    torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half(dtype, device):
    x = torch.randn(8, 100, device=device, dtype=dtype, requires_grad=True)
    target = torch.randint(0, 100, (8,), device=device)
    y = onepass.torch.softmax(x, dtype=torch.float32)
    assert y.dtype == torch.float32
    y.square().sum().backward()
    assert x.grad.dtype == dtype
    loss = onepass.torch.cross_entropy(x, target, dtype=torch.float32)
    torch.testing.assert_close(loss, F.cross_entropy(x.float(), target), rtol=1e-4, atol=1e-4)
    loss.backward()


def test_options_are_constants(x):
    with pytest.raises(NotImplementedError, match="scale_rows: requires grad"):
        onepass.torch.softmax(
            x, scale=torch.ones(5, dtype=x.dtype, device=x.device, requires_grad=True)
        )


def test_lse_has_no_gradient(x, target):
    loss, lse = onepass.torch.cross_entropy(x, target, return_lse=True)
    assert loss.requires_grad and not lse.requires_grad
    torch.testing.assert_close(lse, x.detach().logsumexp(-1))


def test_no_gradient_is_lost_in_silence(x):
    for choose in (onepass.torch.topk, onepass.torch.gate):
        with pytest.raises(NotImplementedError, match="has no gradient: pass the detached tensor"):
            choose(x.float(), 2)
    assert onepass.torch.sample(x.float()).shape == (5,)
    (first,) = torch.autograd.grad(onepass.torch.softmax(x).square().sum(), x)
    assert first.shape == x.shape
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.autograd.grad(onepass.torch.softmax(x).square().sum(), x, create_graph=True)


@pytest.mark.parametrize("case", range(5))
def test_the_short_way_to_a_gradient_is_the_operators(device, x, target, case):
    options = row_options(device)[case]
    weights = torch.linspace(-1, 2, x.numel(), dtype=x.dtype, device=device).view_as(x)
    for name, function in {
        "softmax": lambda: (onepass.torch.softmax(x, **options) * weights).sum(),
        "log_softmax": lambda: (
            onepass.torch.log_softmax(x, **options).clamp(min=-50) * weights
        ).sum(),
        "cross_entropy": lambda: onepass.torch.cross_entropy(x, target, dim=-1, **options).clamp(
            max=50
        ),
    }.items():
        (short,) = torch.autograd.grad(function(), x)
        with Watch() as watch:
            (watched,) = torch.autograd.grad(function(), x)
        assert {f"onepass.{name}.default", f"onepass.{name}_backward.default"} <= set(watch.seen)
        torch.testing.assert_close(short, watched, rtol=0, atol=0, equal_nan=True)


def test_a_seed_is_64_bits(device):
    x = torch.zeros(1, 4096, device=device)
    for name in ("seed", "offset"):
        with Watch() as watch:  # as an operator, whose integers have a sign
            last = onepass.torch.sample(x, **{name: 2**64 - 1})
        assert watch.seen == ["onepass.sample.default"]
        assert last.equal(onepass.torch.sample(x, **{name: 2**64 - 1})) and last.equal(
            onepass.torch.sample(x, **{name: -1})
        )
        with (
            Watch(),
            pytest.raises(ValueError, match=f"{name}: 18446744073709551616 is not between"),
        ):
            onepass.torch.sample(x, **{name: 2**64})


def test_what_torch_nn_functional_has_under_another_name(device, x, target):
    with pytest.raises(TypeError, match="size_average: is `reduction` here"):
        onepass.torch.cross_entropy(x, target, size_average=True)
    with pytest.raises(TypeError, match="dim: a tensor is none; class weights are `weight`"):
        onepass.torch.cross_entropy(x, target, torch.ones(6, device=device))
    with pytest.raises(
        TypeError, match=r"cross_entropy\(\) got an unexpected keyword argument 'wieght'"
    ):
        onepass.torch.cross_entropy(x, target, wieght=None)
    q = torch.zeros(1, 1, 4, 8, device=device)
    for watched in (False, True):  # the short way, and the operator's
        with Watch() if watched else torch.no_grad():
            with pytest.raises(NotImplementedError, match="dropout_p: 0.25 is not 0"):
                onepass.torch.attention(q, q, q, dropout_p=0.25)
            with pytest.raises(TypeError, match="is_causal: is `causal` here"):
                onepass.torch.attention(q, q, q, is_causal=True)
            assert onepass.torch.attention(q, q, q, dropout_p=0.0).shape == q.shape


def test_modules(device, x, target):
    softmax = onepass.torch.nn.Softmax(dim=0, temperature=0.5)
    torch.testing.assert_close(softmax(x), F.softmax(2 * x, 0))
    loss = onepass.torch.nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=5)
    expected = F.cross_entropy(x, target.clamp(min=0), label_smoothing=0.1, ignore_index=5)
    torch.testing.assert_close(loss(x, target.clamp(min=0)), expected)
    weighted = onepass.torch.nn.CrossEntropyLoss(torch.ones(6), ignore_index=5).to(x.dtype)
    assert weighted.weight.dtype == x.dtype and "weight" in weighted.state_dict()
    expected = F.cross_entropy(x, target.clamp(min=0), ignore_index=5)
    torch.testing.assert_close(weighted(x, target.clamp(min=0)), expected)
    assert torch.compile(softmax, fullgraph=True)(x).shape == x.shape
