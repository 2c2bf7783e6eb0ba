"""The samples of PyTorch's own operator tests (OpInfo), forward and gradient, in each
dtype of ours."""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from conftest import TOLERANCE
from suites.case import Case, Refusal
from torch import Tensor

import onepass.torch

DTYPES = ("float32", "float16", "bfloat16", "float64")

# Scores of the samples of attention go up to 200, and half an ulp of that is an error of
# 8e-6 in a weight.
_LARGE_SCORES = "float32, large scores"
# Their gradients multiply what is left of dp − D by keys of up to 9: numbers of up to 100 that
# nearly cancel, of which D is from the rounded o.
_STEEP = {"float32": 5e-5, "float16": 4e-2, "bfloat16": 0.3, "float64": 1e-12}
_TOLERANCE = TOLERANCE | {_LARGE_SCORES: 5e-5}
_TOLERANCE |= {f"{dtype}, steep": tolerance for dtype, tolerance in _STEEP.items()}

Function = Callable[[Tensor], Any]


def _same(result: Any) -> Any:
    return result


@dataclass
class Mapped:
    """What ours are of a sample, as functions of its input; the fields are those of Case."""

    straight: Function
    refusal: Refusal | None = None
    adapted: tuple[str, ...] = ()
    instead: Function | None = None
    expected: Function = _same  # of the reference's result: what it is by our contract
    hidden: Tensor | None = None  # elements whose gradient's dy we do not count
    tolerance: str | None = None  # another than the dtype's
    steep: str | None = None  # and for the gradient
    no_gradient: Refusal | None = None
    gradient: "Mapped | None" = None  # where it takes another call
    reference: Function | None = None  # in place of the suite's op


def _softmax(function: Callable[..., Any], scale: float = 1.0) -> Callable[..., Mapped]:
    options = {} if scale == 1 else {"scale": scale}

    def mapped(
        x: Tensor, dim: int, dtype: torch.dtype | None = None, mask: Tensor | None = None
    ) -> Mapped:
        given = options | {
            name: value for name, value in (("dtype", dtype), ("mask", mask)) if value is not None
        }
        result = Mapped(lambda x: function(x, dim, **given))
        if dtype == torch.float64 and x.dtype != dtype:
            result.adapted = (
                "to float32's accuracy: theirs converts x to float64 first, ours the result",
            )
            result.tolerance = (
                str(x.dtype).removeprefix("torch.") if x.dtype == torch.float32 else "float32"
            )
        if mask is not None:
            _hide(result, x, dim, mask, 0.0 if "log" not in function.__name__ else -torch.inf)
        return result

    return mapped


def _safe_softmax(x: Tensor, dim: int) -> Mapped:
    return Mapped(lambda x: onepass.torch.softmax(x, dim))


def _hide(mapped: Mapped, x: Tensor, dims: Any, mask: Tensor, value: float) -> None:
    """What our contract has of rows that are hidden as a whole, and of a hidden
    logit's gradient."""
    visible = torch.broadcast_to(mask, x.shape)
    mapped.hidden = ~visible
    if x.dim() and not visible.any(dims, keepdim=True).all():
        empty = ~visible.any(dims, keepdim=True)
        mapped.adapted = ("a fully masked row gives 0, or −inf for a logarithm: theirs gives NaN",)
        mapped.expected = lambda result: torch.where(
            empty.broadcast_to(result.shape), value, result
        )


def _logsumexp(
    x: Tensor, dims: Any = None, keepdim: bool = False, mask: Tensor | None = None
) -> Mapped:
    dims = [dims] if isinstance(dims, int) else list(range(x.dim())) if not dims else list(dims)
    given = {} if mask is None else {"mask": mask}
    if len(dims) == 1 or x.dim() == 0:
        dim = dims[0] if dims else 0

        def straight(x: Tensor) -> Tensor:
            y = onepass.torch.logsumexp(x, dim, **given)
            return y.unsqueeze(dim) if keepdim and x.dim() else y

        result = Mapped(straight)
    else:
        dims = sorted(dim % x.dim() for dim in dims)

        def instead(x: Tensor) -> Tensor:
            rows = x.movedim(dims, list(range(-len(dims), 0)))
            masks = {}
            if mask is not None:
                masks["mask"] = (
                    mask.broadcast_to(x.shape)
                    .movedim(dims, list(range(-len(dims), 0)))
                    .flatten(-len(dims))
                )
            y = onepass.torch.logsumexp(rows.flatten(-len(dims)), **masks)
            return (
                y.reshape([1 if i in dims else n for i, n in enumerate(x.shape)]) if keepdim else y
            )

        result = Mapped(
            lambda x: onepass.torch.logsumexp(x, tuple(dims), **given),
            refusal=Refusal("several dimensions", TypeError, "axis"),
            adapted=("several dimensions are flattened to one: ours reduces one",),
            instead=instead,
        )
    return result


def _masked_logsumexp(
    x: Tensor, dim: Any = None, keepdim: bool = False, mask: Tensor | None = None
) -> Mapped:
    return _logsumexp(x, dim, keepdim, mask)


def _cross_entropy(x: Tensor, target: Tensor, **options: Any) -> Mapped:
    return Mapped(functools.partial(onepass.torch.cross_entropy, target=target, **options))


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Mapped:
    def gathered(x: Tensor) -> tuple[Tensor, Tensor]:
        _, indices = instead(x.detach())
        return x.gather(dim, indices) if x.dim() else x[indices], indices

    def instead(x: Tensor) -> Any:
        return tuple(
            result.movedim(-1, dim)
            for result in onepass.torch.topk(x.movedim(dim, -1), k, sorted=sorted)
        )

    assert largest, "no sample wants the smallest"
    no_gradient = Refusal("gradients", NotImplementedError, "has no gradient")
    if x.dim() == 0:
        refusal = Refusal("a tensor of no dimensions", ValueError, "x: has no dimension")
        scalar = Mapped(lambda x: onepass.torch.topk(x, k), refusal)
        scalar.gradient = Mapped(scalar.straight, no_gradient)
        return scalar
    if dim % x.dim() == x.dim() - 1:
        result = Mapped(lambda x: onepass.torch.topk(x, k, sorted=sorted))
    else:
        result = Mapped(
            lambda x: onepass.torch.topk(x, k, dim=dim, sorted=sorted),
            refusal=Refusal(
                "another dimension than the last", TypeError, "unexpected keyword argument"
            ),
            adapted=("the dimension is moved last: ours selects along that one",),
            instead=instead,
        )
    result.gradient = Mapped(
        lambda x: onepass.torch.topk(x, k, sorted=sorted),
        refusal=no_gradient,
        adapted=("selected from the detached tensor, then gathered: ours has no gradient",),
        instead=gathered,
        reference=lambda x: x.sort(dim=dim, descending=True, stable=True)[0].narrow(
            dim, 0, k
        ),  # the lower of equal ones
    )
    return result


def _attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, enable_gqa: bool = False,
) -> Mapped:  # fmt: skip
    options = {} if attn_mask is None else {"mask": attn_mask}
    keys = k.shape[-2]
    if dropout_p:
        refusal = Refusal("dropout", (TypeError, NotImplementedError), "dropout_p")
        straight = functools.partial(
            onepass.torch.attention, k=k, v=v, causal=is_causal, dropout_p=dropout_p
        )
        return Mapped(straight, refusal)
    adapted = []
    refusal = None
    if q.dim() == 3 and k.dim() == 3:
        refusal = Refusal("three dimensions", ValueError, "q: shape")
        adapted.append("a head dimension is inserted: ours needs four dimensions")
    elif q.dim() == 3:
        refusal = Refusal("three dimensions", ValueError, "q: shape")
        adapted.append("q is expanded to the batch of k: ours has the batch in all three")
    if is_causal and q.shape[-2] != keys:
        options["mask"] = torch.ones(q.shape[-2], keys, dtype=torch.bool).tril()
        adapted.append(
            "the diagonal is given as a mask: ours ends at the last key, theirs begins at the first"
        )
    elif is_causal:
        options["causal"] = True

    def instead(q: Tensor) -> Tensor:
        queries = q[:, None] if k.dim() == 3 else q.expand(k.shape[0], *q.shape[-3:])
        o = onepass.torch.attention(queries, _four(k), _four(v), **options)
        return o[:, 0] if k.dim() == 3 else o

    def straight(q: Tensor) -> Tensor:
        return onepass.torch.attention(q, k, v, **options)

    return Mapped(
        straight if refusal else instead,
        refusal,
        tuple(adapted),
        instead if refusal else None,
        tolerance=_LARGE_SCORES if q.dtype == torch.float32 else None,
        steep=f"{str(q.dtype).removeprefix('torch.')}, steep",
    )


def _four(tensor: Tensor) -> Tensor:
    return tensor[:, None] if tensor.dim() == 3 else tensor


def _softmax_backward(dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Mapped:
    result = Mapped(lambda dy: onepass.softmax_backward(y, dy, dim))
    result.gradient = Mapped(
        lambda dy: torch.ops.onepass.softmax_backward(
            y, dy, None, dim, 1.0, None, 1.0, None, 0.0, None, None, None,
            False, -1, -1, None, False,
        ),
        Refusal("second derivatives", NotImplementedError, "softmax_backward has no gradient"),
    )  # fmt: skip
    return result


# By the names in op_db, and of their variants.
MAPPINGS: dict[tuple[str, str], Callable[..., Mapped]] = {
    ("softmax", ""): _softmax(onepass.torch.softmax),
    ("softmax", "with_dtype"): _softmax(onepass.torch.softmax),
    ("torch.ops.aten._safe_softmax.default", ""): _safe_softmax,
    ("_softmax_backward_data", ""): _softmax_backward,
    ("log_softmax", ""): _softmax(onepass.torch.log_softmax),
    ("log_softmax", "with_dtype"): _softmax(onepass.torch.log_softmax),
    ("nn.functional.softmin", ""): _softmax(onepass.torch.softmax, -1.0),
    ("nn.functional.softmin", "with_dtype"): _softmax(onepass.torch.softmax, -1.0),
    ("logsumexp", ""): _logsumexp,
    ("masked.logsumexp", ""): _masked_logsumexp,
    ("masked.softmax", ""): _softmax(onepass.torch.softmax),
    ("masked.log_softmax", ""): _softmax(onepass.torch.log_softmax),
    ("masked.softmin", ""): _softmax(onepass.torch.softmax, -1.0),
    ("nn.functional.cross_entropy", ""): _cross_entropy,
    ("topk", ""): _topk,
    ("nn.functional.scaled_dot_product_attention", ""): _attention,
}


def has(name: str, variant: str) -> bool:
    """Whether this PyTorch has such an op."""
    return (name, variant) in _op_db()


@functools.cache
def _op_db() -> dict[tuple[str, str], Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {(op.name, op.variant_test_name): op for op in op_db}


def cases(name: str, variant: str, dtype: str) -> list[Case]:
    """The samples of an op: each forward, and its gradient where PyTorch has one."""
    op = _op_db()[name, variant]
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    samples = list(op.sample_inputs("cpu", kind, requires_grad=op.supports_autograd))
    made = []
    for number, sample in enumerate(samples):
        wants_gradient = isinstance(sample.input, Tensor) and sample.input.requires_grad
        sample = sample.transform(
            lambda value: value.detach() if isinstance(value, Tensor) else value
        )
        mapped = MAPPINGS[name, variant](sample.input, *sample.args, **sample.kwargs)
        title = " ".join(filter(None, (name.removeprefix("torch.ops."), variant)))
        label = f"{dtype} {number}"
        made.append(_forward(op, sample, mapped, title, label, dtype))
        if wants_gradient:
            made.append(_gradient(op, sample, mapped.gradient or mapped, title, label, mapped))
    return made


def all_cases() -> list[Case]:
    ops = [op for op in MAPPINGS if has(*op)]
    return [case for op in ops for dtype in DTYPES for case in cases(*op, dtype)]


def _forward(op: Any, sample: Any, mapped: Mapped, title: str, label: str, dtype: str) -> Case:
    def check(result: Any) -> None:
        theirs = op(sample.input, *sample.args, **sample.kwargs)
        exact = op(*_wide((sample.input, *sample.args)), **_wide(sample.kwargs))
        if isinstance(theirs, tuple):  # of topk: of equal values either index may be the one
            indices = result[1]
            assert indices.dtype == theirs[1].dtype
            dim = sample.args[1] if len(sample.args) > 1 else -1
            torch.testing.assert_close(sample.input.gather(dim, indices), result[0], rtol=0, atol=0)
            result, theirs, exact = result[0], theirs[0], exact[0]
        assert result.dtype == theirs.dtype
        _assert_close(result, mapped.expected(exact), mapped.tolerance or dtype)

    calls = [
        function and functools.partial(function, sample.input)
        for function in (mapped.straight, mapped.instead)
    ]
    return Case(title, label, calls[0], check, mapped.refusal, mapped.adapted, calls[1])


def _gradient(
    op: Any, sample: Any, mapped: Mapped, title: str, label: str, forward: Mapped
) -> Case:
    adapted = mapped.adapted
    hidden = forward.hidden if "log" in title else None
    if hidden is not None and hidden.any():
        adapted = adapted or ("dy is 0 where a logit is hidden: ours ignores it there",)

    def of(function: Function | None, x: Tensor) -> Callable[[], Tensor] | None:
        def call() -> Tensor:
            leaf = x.clone().requires_grad_()
            result = function(leaf)
            result = result[0] if isinstance(result, tuple) else result
            dy = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(
                sample.input.dtype
            )
            result.backward((dy if hidden is None else dy.masked_fill(hidden, 0)).to(result.dtype))
            return leaf.grad

        return function and call

    def check(gradient: Tensor) -> None:
        arguments, options = _wide(sample.args), _wide(sample.kwargs)
        expected = of(
            mapped.reference or (lambda x: op(x, *arguments, **options)), sample.input.double()
        )()
        if forward.expected is not _same:
            expected = torch.nan_to_num(expected, nan=0.0)
        assert gradient.dtype == sample.input.dtype
        dtype = str(gradient.dtype).removeprefix("torch.")
        _assert_close(gradient, expected, mapped.steep or dtype)

    refusal = mapped.refusal or mapped.no_gradient
    return Case(
        title, label, of(mapped.straight, sample.input), check, refusal, adapted,
        of(mapped.instead, sample.input), part="gradient",
    )  # fmt: skip


def _wide(value: Any) -> Any:
    """The same in float64, where the reference is computed."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {name: _wide(part) for name, part in value.items()}
    if isinstance(value, torch.dtype):
        return torch.float64
    return (
        tuple(map(_wide, value))
        if isinstance(value, (tuple, list)) and not _is_ints(value)
        else value
    )


def _is_ints(value: Any) -> bool:
    return all(isinstance(part, int) for part in value)


def _assert_close(result: Tensor, exact: Tensor, dtype: str) -> None:
    assert result.shape == exact.shape
    tolerance = _TOLERANCE[dtype]
    torch.testing.assert_close(
        result.double(), exact.double(), rtol=tolerance, atol=tolerance, equal_nan=True
    )
