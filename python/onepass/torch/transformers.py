"""onepass as an attention implementation of Hugging Face transformers (5.0+), for training too.

    import onepass.torch.transformers

    onepass.torch.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="onepass")

Causal attention, GQA, softcaps and sinks are passed to the op as they are. Everything else that a
model hides (padding, sliding windows, chunks) arrives as the boolean mask that transformers makes
for "sdpa". There is no dropout: train with an attention dropout of 0."""

from typing import Any

import torch
from torch import Tensor

from onepass.torch._functions import attention


def register(name: str = "onepass") -> None:
    """Registers `attn_implementation=name` with transformers, which only this function imports."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, sdpa_mask)


def _in_one_dtype(query: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Casts as torch.autocast does for PyTorch's attention: a rotary embedding may leave q and k
    wider than v."""
    device = query.device.type
    if torch.is_autocast_enabled(device) and query.dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
        return tuple(tensor.to(dtype) for tensor in (query, *others))
    return query, *others


def forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool | None = False,
    **_: Any,
) -> tuple[Tensor, None]:
    """What a layer calls: takes batch × heads × tokens × dim, returns batch × tokens × heads × dim
    and no attention weights."""
    if dropout:
        raise NotImplementedError(
            f"dropout: {dropout}, and onepass has none: set the attention dropout of the model's "
            "config to 0"
        )
    if output_attentions:
        raise NotImplementedError(
            f"output_attentions: {output_attentions}, and onepass never has the weights in memory: "
            'ask a model with attn_implementation="eager"'
        )
    query, key, value = _in_one_dtype(query, key, value)
    queries = query.shape[2]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = attention_mask is None and queries > 1 and is_causal
    if causal:
        # In a cache with room for more tokens, the keys past the last query are empty, and the
        # diagonal starts at the first key.
        key, value = key[:, :, :queries], value[:, :, :queries]
        position_bias = None if position_bias is None else position_bias[..., :queries]
    o = attention(
        # In this layout the result is dense in the way that the layer expects.
        *(tensor.transpose(1, 2) for tensor in (query, key, value)),
        layout="bshd",
        scale=scaling,
        softcap=softcap or 0.0,
        mask=(attention_mask, position_bias),
        causal=causal,
        sinks=s_aux,
    )
    return o, None
