"""Attention beside PyTorch's backends and other libraries."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import onepass
import onepass.torch
from onepass.bench._ops import Call, plain
from onepass.bench._report import Row


@dataclass(frozen=True)
class Inputs:
    q: torch.Tensor  # batch × heads × queries × dim
    k: torch.Tensor
    v: torch.Tensor
    causal: bool

    @classmethod
    def random(
        cls,
        q_shape: tuple[int, ...],
        kv_shape: tuple[int, ...],
        causal: bool,
        dtype: torch.dtype,
        device: str,
    ) -> "Inputs":
        generator = torch.Generator(device).manual_seed(kv_shape[2])
        shapes = (q_shape, kv_shape, kv_shape)
        q, k, v = (
            torch.randn(shape, device=device, generator=generator).to(dtype) for shape in shapes
        )
        return cls(q, k, v, causal and q_shape[2] > 1)  # a single query sees every key in any case

    @property
    def dtype(self) -> torch.dtype:
        return self.q.dtype

    def tokens_first(self) -> list[torch.Tensor]:
        """Dense, as most libraries want it."""
        return [t.transpose(1, 2).contiguous() for t in (self.q, self.k, self.v)]


Peer = Callable[[Inputs], Call]


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    return F.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )


def backend(which: SDPBackend) -> Peer:
    def build(inputs: Inputs) -> Call:
        def call() -> torch.Tensor:
            with sdpa_kernel(which):
                return sdpa(inputs.q, inputs.k, inputs.v, inputs.causal)

        return call

    return build


def flash_attn(inputs: Inputs) -> Call:
    from flash_attn import flash_attn_func

    arrays = inputs.tokens_first()
    return lambda: flash_attn_func(*arrays, causal=inputs.causal).transpose(1, 2)


def flash_attn_3(inputs: Inputs) -> Call:
    from flash_attn_interface import flash_attn_func

    def call() -> torch.Tensor:
        result = flash_attn_func(*arrays, causal=inputs.causal)  # with the lse in some versions
        return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

    arrays = inputs.tokens_first()
    return call


def flashinfer(inputs: Inputs) -> Call:
    from flashinfer import single_prefill_with_kv_cache

    if len(inputs.q) != 1:
        raise ValueError("measured with one sequence only")
    q, k, v = (array[0] for array in inputs.tokens_first())
    return lambda: single_prefill_with_kv_cache(q, k, v, causal=inputs.causal).transpose(0, 1)[None]


class Attention:
    """Takes the place of an `Op`."""

    peers: dict[str, Peer] = {
        "onepass": plain(lambda i: onepass.attention(i.q, i.k, i.v, causal=i.causal)),
        "onepass.torch": plain(lambda i: onepass.torch.attention(i.q, i.k, i.v, causal=i.causal)),
        "torch": plain(lambda i: sdpa(i.q, i.k, i.v, i.causal)),
        "torch.flash": backend(SDPBackend.FLASH_ATTENTION),
        "torch.cudnn": backend(SDPBackend.CUDNN_ATTENTION),
        "torch.efficient": backend(SDPBackend.EFFICIENT_ATTENTION),
        "flash-attn": flash_attn,
        "flash-attn-3": flash_attn_3,
        "flashinfer": flashinfer,
    }

    @staticmethod
    def reference(inputs: Inputs) -> torch.Tensor:
        return sdpa(inputs.q.float(), inputs.k.float(), inputs.v.float(), inputs.causal)

    @staticmethod
    def rates(inputs: Inputs, microseconds: float) -> dict[str, float]:
        """Two products over the pairs that no mask hides, and the fewest bytes: q, k,
        v and o once."""
        batch, heads, queries, dim = inputs.q.shape
        pairs = queries * inputs.k.shape[2] - (queries * (queries - 1) // 2 if inputs.causal else 0)
        moved = 2 * inputs.q.nbytes + inputs.k.nbytes + inputs.v.nbytes
        return {
            "tflops": 4 * batch * heads * pairs * dim / microseconds / 1e6,
            "gbs": moved / microseconds / 1e3,
        }


def cases(
    shapes: list[tuple[int, ...]],
    dtypes: list[str],
    device: str,
    kv_heads: int | None,
    causal: bool,
    decode: bool,
) -> Iterator[tuple[Any, Callable[[], Any], Row]]:
    """For `_run.run`. A shape is batch × heads × keys × dim; with `decode` each sequence
    has one query."""
    for dtype in dtypes:
        for shape in shapes:
            batch, heads, keys, dim = shape
            few = kv_heads or heads
            said = (
                [f"{few} kv heads"] * (few != heads) + ["causal"] * causal + ["one query"] * decode
            )
            case = {
                "op": "attention",
                "shape": ", ".join(["×".join(map(str, shape)), *said]),
                "group": ", ".join([f"{heads} heads, dim {dim}", *said]),
                "cols": keys,
                "dtype": dtype,
            }
            q_shape, kv_shape = (batch, heads, 1 if decode else keys, dim), (batch, few, keys, dim)
            build = functools.partial(
                Inputs.random, q_shape, kv_shape, causal, getattr(torch, dtype), device
            )
            yield Attention, build, case
