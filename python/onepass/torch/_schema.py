"""The arguments that the PyTorch operators share, and how operators are registered.

A schema has no type for "number or tensor" and no nested tuples, so `scale`, `mask` and `window` of
`onepass.softmax` are several arguments each of the operator. `Logits` lists them in the schema's
order."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("onepass", "FRAGMENT")

MASK = (
    "Tensor? boolean, Tensor? additive, Tensor? lengths, bool causal, "
    "SymInt window_left, SymInt window_right"
)
LOGITS = (
    "float scale, Tensor? scale_rows, float temperature, Tensor? temperature_rows, "
    f"float softcap, {MASK}"
)

SECOND = "second derivatives are not implemented"


def pack_mask(mask: Any, lengths: Tensor | None, causal: bool, window: Any) -> tuple[Any, ...]:
    """Converts a user's arguments to those of MASK."""
    parts = [part for part in (mask if isinstance(mask, tuple) else (mask,)) if part is not None]
    boolean = [part for part in parts if not part.is_floating_point()]
    additive = [part for part in parts if part.is_floating_point()]
    if len(boolean) > 1 or len(additive) > 1:
        raise ValueError("mask: two parts of the same sort")
    left, right = window or (-1, -1)
    return (
        boolean[0] if boolean else None,
        additive[0] if additive else None,
        lengths,
        causal,
        left,
        right,
    )


def mask_options(
    boolean: Any, additive: Any, lengths: Any, causal: bool, left: int, right: int
) -> dict[str, Any]:
    """Converts the arguments of MASK to those of the functions of `onepass`."""
    parts = tuple(part for part in (boolean, additive) if part is not None)
    return {"mask": parts or None, "lengths": lengths, "causal": causal, "window": (left, right)}


class Logits(NamedTuple):
    """The arguments that make the logits z of x."""

    scale: float
    scale_rows: Tensor | None
    temperature: float
    temperature_rows: Tensor | None
    softcap: float
    boolean: Tensor | None
    additive: Tensor | None
    lengths: Tensor | None
    causal: bool
    window_left: int
    window_right: int

    @classmethod
    def pack(cls, scale, temperature, softcap, mask, lengths, causal, window) -> "Logits":
        """Converts a user's arguments."""
        return cls(
            *number_or_rows(scale, 1.0),
            *number_or_rows(temperature, 1.0),
            softcap,
            *pack_mask(mask, lengths, causal, window),
        )

    def options(self) -> dict[str, Any]:
        """Converts to the arguments of the functions of `onepass`."""
        return {
            "scale": either(self.scale, self.scale_rows),
            "temperature": either(self.temperature, self.temperature_rows),
            "softcap": self.softcap,
            **mask_options(*self[5:]),
        }

    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.scale_rows, self.temperature_rows, self.boolean, self.additive, self.lengths

    def with_tensors(self, tensors: Iterable[Tensor | None]) -> "Logits":
        """Puts tensors back: autograd saves them apart from the other arguments."""
        new: dict[str, Any] = {
            name: value for name, value in zip(_TENSORS, tensors) if value is not None
        }
        return self._replace(**new) if new else self

    def without_tensors(self) -> "Logits":
        none: dict[str, Any] = {
            name: None for name, value in zip(_TENSORS, self.tensors()) if value is not None
        }
        return self._replace(**none) if none else self

    def check_constant(self) -> None:
        check_constant(**dict(zip(_TENSORS, self.tensors())))


_TENSORS = ("scale_rows", "temperature_rows", "boolean", "additive", "lengths")


def check_constant(**tensors: Tensor | None) -> None:
    """Refuses tensors that require grad: no gradient is computed for them, and none may be lost
    silently."""
    for name, value in tensors.items():
        if value is not None and value.requires_grad:
            raise NotImplementedError(
                f"{name}: requires grad, but only the first argument has a gradient"
            )


def number_or_rows(value: Any, otherwise: Any) -> tuple[Any, Tensor | None]:
    """Splits into a number for all rows and a tensor with one per row, one of which is unused."""
    return (otherwise, value) if isinstance(value, Tensor) else (value, None)


def signed(argument: str, value: Any) -> Any:
    """Wraps a number to the signed 64 bits that an operator takes; returns tensors as they are."""
    if not isinstance(value, int):
        return value
    if not -(2**63) <= value < 2**64:
        raise ValueError(f"{argument}: {value} is not between -2^63 and 2^64 - 1")
    return value - 2**64 if value >= 2**63 else value


def either(value: Any, rows: Tensor | None) -> Any:
    """The inverse of number_or_rows."""
    return value if rows is None else rows


def operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Registers a function as the operator `onepass::…` of this schema, and `fake` as its fake
    kernel, which computes shapes and dtypes alone."""
    name, parenthesis, rest = schema.partition("(")
    torch.library.define(f"onepass::{name}", parenthesis + rest)

    def register(function: Callable[..., Any]) -> Any:
        torch.library.impl(f"onepass::{name}", ("cpu", "cuda"), function)
        op = getattr(torch.ops.onepass, name).default
        torch.library.register_fake(f"onepass::{name}", _on_one_device(op, fake))
        _KERNELS[op] = function
        return op

    return register


_KERNELS: dict[Any, Callable[..., Any]] = {}


def _on_one_device(op: Any, fake: Callable[..., Any]) -> Callable[..., Any]:
    """Has `fake` refuse tensors of two devices. The kernel refuses them, too, but is never called
    if one of them is on the meta device, and the result would hold no data."""
    names = [argument.name for argument in op._schema.arguments]

    def checked(*inputs: Any) -> Any:
        tensors = [
            (name, value.device) for name, value in zip(names, inputs) if isinstance(value, Tensor)
        ]
        first, device = tensors[0]
        for name, other in tensors:
            if other != device:
                raise ValueError(f"{name}: is on {other}, {first} on {device}")
        return fake(*inputs)

    return checked


def differentiable(
    op: Any, remember: Callable[..., None], gradients: Callable[..., Any], places: Any = (0,)
) -> Callable[..., Any]:
    """Gives an operator gradients for its arguments at `places`: `remember(ctx, inputs, output)`,
    then `gradients(ctx, *grads)`, a tuple with one for each. Returns the fastest way to call it.

    Does what torch.library.register_autograd does, but does not examine the defaults of every
    argument, which for this many arguments takes longer than the rest of the call. Autograd sees
    the arguments at `places` alone."""
    function = _KERNELS[op]

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keys: Any, inputs: tuple[Any, ...], *seen: Tensor | None) -> Any:
            output = function(*inputs) if keys is None else _below(op, keys, inputs)
            remember(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return None, None, *gradients(ctx, *grads)

    def with_gradient(keys: Any, *inputs: Any) -> Any:
        return Function.apply(keys, inputs, *[inputs[place] for place in places])

    def kernel(keys: Any, *inputs: Any) -> Any:
        return with_gradient(keys, *inputs) if _wants_gradient(inputs) else _below(op, keys, inputs)

    _LIBRARY.impl(op._schema.name, kernel, "Autograd", with_keyset=True)
    return _unseen(op, functools.partial(with_gradient, None))


def undifferentiable(op: Any, instead: str) -> Callable[..., Any]:
    """Has an operator refuse tensors that require grad, so that no gradient is lost silently.
    Returns the fastest way to call it."""

    def kernel(keys: Any, *inputs: Any) -> Any:
        if _wants_gradient(inputs):
            raise NotImplementedError(f"{op._schema.name} has no gradient: {instead}")
        return _below(op, keys, inputs)

    _LIBRARY.impl(op._schema.name, kernel, "Autograd", with_keyset=True)
    return _unseen(op, op)


def without_gradient(op: Any) -> None:
    """Has an operator accept tensors that require grad: its results are integers, which have no
    gradient."""

    def kernel(keys: Any, *inputs: Any) -> Any:
        with torch.no_grad():
            return _below(op, keys, inputs)

    _LIBRARY.impl(op._schema.name, kernel, "Autograd", with_keyset=True)


def _unseen(op: Any, with_gradient: Callable[..., Any]) -> Callable[..., Any]:
    """Calls the operator if anything observes operators, and otherwise its kernel: calling an
    operator with a Python kernel takes PyTorch several times as long as the kernel itself takes."""
    function = _KERNELS[op]

    def call(*inputs: Any) -> Any:
        if _watching() or not _usual(inputs):
            return op(*inputs)
        return with_gradient(*inputs) if _wants_gradient(inputs) else function(*inputs)

    return call


def _wants_gradient(inputs: tuple[Any, ...]) -> bool:
    return torch._C.is_grad_enabled() and torch._C._any_requires_grad(*inputs)


def _below(op: Any, keys: Any, inputs: tuple[Any, ...]) -> Any:
    """Calls what comes after autograd in the dispatcher."""
    with torch._C._AutoDispatchBelowAutograd():
        return op.redispatch(keys & torch._C._after_autograd_keyset, *inputs)


_P = ParamSpec("_P")
_R = TypeVar("_R")


def straight(direct: Callable[..., Any]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Has a function that calls an operator call `direct`, its twin in `onepass`, if nothing
    observes operators and no gradient is wanted."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **options: _P.kwargs) -> _R:
            if _watching() or not _plain(args) or not _plain(options.values()):
                return function(*args, **options)
            if "dim" in options:
                options["axis"] = options.pop("dim")
            return direct(*args, **options)

        return call

    return decorate


def _watching() -> bool:
    """Whether anything observes operators: a compiler, a mode, a transform, a trace or a
    profiler."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._is_torch_function_mode_enabled()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        or torch.autograd._profiler_enabled()
    )


def _usual(values: Iterable[Any], but_gradients: bool = False) -> bool:
    """Whether all tensors are plain ones: no subclass, which could observe calls, and not meta."""
    for value in values:
        if isinstance(value, Tensor):
            if (
                type(value) not in _PLAIN
                or value.is_meta
                or (but_gradients and value.requires_grad)
            ):
                return False
        elif type(value) is tuple and not _usual(value, but_gradients):
            return False
    return True


def _plain(values: Iterable[Any]) -> bool:
    """Whether all tensors are plain ones that need no gradient."""
    return _usual(values, but_gradients=torch.is_grad_enabled())


_PLAIN = (Tensor, torch.nn.Parameter)
