"""What is measured: each op with its inputs, its bytes, and the peers that can compute it.

A peer is a function that imports what it needs and gives a call without arguments. One that is not
installed is reported as absent; one that fails, with its error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F

import onepass
import onepass.torch

Call = Callable[[], Any]
Given = TypeVar("Given")  # an op's inputs
K = 50  # of top-k


@dataclass(frozen=True)
class Inputs:
    x: torch.Tensor
    target: torch.Tensor  # one class per row
    out: torch.Tensor  # of x's shape, for the copy

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    @classmethod
    def random(cls, rows: int, cols: int, dtype: torch.dtype, device: str) -> "Inputs":
        generator = torch.Generator(device).manual_seed(rows + cols)
        x = torch.randn(rows, cols, device=device, generator=generator).to(dtype)
        target = torch.randint(0, cols, (rows,), device=device, generator=generator)
        return cls(x, target, torch.empty_like(x))


Peer = Callable[[Inputs], Call]


@dataclass(frozen=True)
class Op:
    moves: int  # the fewest bytes to move, in units of x's: one read, perhaps one write
    reference: Callable[[Inputs], Any]  # in float32; every peer's first result is compared with it
    peers: dict[str, Peer]

    def rates(self, inputs: Inputs, microseconds: float) -> dict[str, float]:
        return {"gbs": self.moves * inputs.x.nbytes / microseconds / 1e3}


def plain(function: Callable[[Given], Any]) -> Callable[[Given], Call]:
    return lambda inputs: lambda: function(inputs)


def compile_anew(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles for the next shape alone, not once more for all shapes."""
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


def compiled(function: Callable[..., Any]) -> Peer:
    def build(inputs: Inputs) -> Call:
        fast = compile_anew(function)
        return lambda: fast(inputs.x, inputs.target)

    return build


def with_gradient(
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[Inputs], Any]:
    """The loss and the gradient of the logits."""

    def run(inputs: Inputs) -> Any:
        x = inputs.x.detach().requires_grad_()
        value = loss(x, inputs.target)
        return value.detach(), torch.autograd.grad(value, x)[0]

    return run


def copy(inputs: Inputs) -> Call:
    return lambda: inputs.out.copy_(inputs.x)


def read(inputs: Inputs) -> Call:
    """The baseline of ops that write next to nothing."""
    return lambda: inputs.x.amax()


def triton_softmax(inputs: Inputs) -> Call:
    from onepass.bench import _triton

    return lambda: _triton.softmax(inputs.x)


def quack_softmax(inputs: Inputs) -> Call:
    from quack.softmax import softmax

    return lambda: softmax(inputs.x)


def liger_softmax(inputs: Inputs) -> Call:
    from liger_kernel.transformers.functional import liger_softmax as softmax

    return lambda: softmax(inputs.x)


def flashinfer_softmax(inputs: Inputs) -> Call:
    from flashinfer.sampling import softmax

    return lambda: softmax(inputs.x.float())


def quack_loss(inputs: Inputs) -> Call:
    from quack.cross_entropy import cross_entropy

    return lambda: cross_entropy(inputs.x, inputs.target, reduction="mean")


def quack_training(inputs: Inputs) -> Call:
    from quack.cross_entropy import cross_entropy

    return plain(with_gradient(lambda x, target: cross_entropy(x, target, reduction="mean")))(
        inputs
    )


def liger_training(inputs: Inputs) -> Call:
    from liger_kernel.transformers.functional import liger_cross_entropy

    # It writes the gradient over its input, so it gets one of its own.
    scratch = Inputs(inputs.x.clone(), inputs.target, inputs.out)
    return plain(with_gradient(lambda x, target: liger_cross_entropy(x, target)))(scratch)


def flashinfer_topk(inputs: Inputs) -> Call:
    from flashinfer import top_k

    return lambda: top_k(inputs.x, K)


def quack_topk(inputs: Inputs) -> Call:
    from quack.topk import topk

    return lambda: topk(inputs.x, 64)  # powers of two only


def flashinfer_sample(inputs: Inputs) -> Call:
    from flashinfer.sampling import top_k_top_p_sampling_from_logits

    x = inputs.x.float()
    return lambda: top_k_top_p_sampling_from_logits(x, K, 0.9)


def torch_sample(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    values, indices = x.float().topk(min(K, x.shape[-1]))
    weights = values.softmax(-1)
    weights = weights.masked_fill(weights.cumsum(-1) - weights > 0.9, 0)
    return indices.gather(-1, weights.multinomial(1))[:, 0]


def torch_softmax(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return F.softmax(x, -1)


def torch_softmax_topk(x: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return F.softmax(x, -1).topk(min(K, x.shape[-1]))


def torch_gate(x: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values, indices = F.softmax(x, -1).topk(8)
    return values / values.sum(-1, keepdim=True), indices


def beside_torch(
    ours: Callable[[Inputs], Any], theirs: Callable[..., Any], **peers: Peer
) -> dict[str, Peer]:
    return {
        "onepass": plain(ours),
        "torch": plain(lambda i: theirs(i.x, i.target)),
        "torch.compile": compiled(theirs),
        **peers,
    }


def few(inputs: Inputs) -> int:
    return min(K, inputs.x.shape[-1])


OPS: dict[str, Op] = {
    "softmax": Op(
        2,
        lambda i: F.softmax(i.x.float(), -1),
        beside_torch(
            lambda i: onepass.softmax(i.x),
            torch_softmax,
            triton=triton_softmax,
            flashinfer=flashinfer_softmax,
            liger=liger_softmax,
            quack=quack_softmax,
            copy=copy,
        ),
    ),
    "log_softmax": Op(
        2,
        lambda i: F.log_softmax(i.x.float(), -1),
        beside_torch(
            lambda i: onepass.log_softmax(i.x), lambda x, _: F.log_softmax(x, -1), copy=copy
        ),
    ),
    "logsumexp": Op(
        1,
        lambda i: i.x.float().logsumexp(-1),
        beside_torch(lambda i: onepass.logsumexp(i.x), lambda x, _: x.logsumexp(-1), read=read),
    ),
    "cross_entropy": Op(
        1,
        lambda i: F.cross_entropy(i.x.float(), i.target),
        beside_torch(
            lambda i: onepass.cross_entropy(i.x, i.target),
            F.cross_entropy,
            quack=quack_loss,
            read=read,
        ),
    ),
    "cross_entropy_training": Op(
        2,
        lambda i: F.cross_entropy(i.x.float(), i.target),
        {
            "onepass": plain(lambda i: onepass.cross_entropy_with_gradient(i.x, i.target)),
            "onepass.torch": plain(with_gradient(onepass.torch.cross_entropy)),
            "torch": plain(with_gradient(F.cross_entropy)),
            "torch.compile": lambda i: plain(with_gradient(compile_anew(F.cross_entropy)))(i),
            "liger": liger_training,
            "quack": quack_training,
            "copy": copy,
        },
    ),
    "topk": Op(
        1,
        lambda i: i.x.float().topk(few(i))[0],
        beside_torch(
            lambda i: onepass.topk(i.x, few(i)),
            lambda x, _: x.topk(min(K, x.shape[-1])),
            flashinfer=flashinfer_topk,
            quack=quack_topk,
            read=read,
        ),
    ),
    "softmax_topk": Op(
        1,
        lambda i: F.softmax(i.x.float(), -1).topk(few(i))[0],
        beside_torch(lambda i: onepass.softmax_topk(i.x, few(i)), torch_softmax_topk, read=read),
    ),
    "sample": Op(
        1,
        lambda i: None,  # draws differ
        beside_torch(
            lambda i: onepass.sample(i.x, top_k=K, top_p=0.9, seed=1),
            torch_sample,
            flashinfer=flashinfer_sample,
            read=read,
        ),
    ),
    "gate": Op(
        1,
        lambda i: torch_gate(i.x.float(), i.target)[0],
        beside_torch(lambda i: onepass.gate(i.x, 8, renormalize=True), torch_gate, read=read),
    ),
}
