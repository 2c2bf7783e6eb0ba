"""onepass as an attention implementation of Hugging Face transformers (5.0 or
later), for inference.

    import onepass.torch.transformers

    onepass.torch.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="onepass")

Causal attention, grouped heads, softcaps and sinks go to the op as they are. Everything else
that a model hides (padding, sliding windows, chunks) comes as the boolean mask that transformers
makes for "sdpa"."""

from typing import Any

import torch
from torch import Tensor

from onepass.torch._functions import attention


def register(name: str = "onepass") -> None:
    """Makes `attn_implementation=name` known to transformers, which is imported here and
    nowhere else."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, sdpa_mask)


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
    """What a layer calls: batch × heads × tokens × dim in, batch × tokens × heads × dim out,
    and no weights."""
    if dropout:
        raise NotImplementedError(
            f"dropout: {dropout}, and onepass has none: it is for inference, see model.eval()"
        )
    if output_attentions:
        raise NotImplementedError(
            f"output_attentions: {output_attentions}, and onepass never has the weights in memory: "
            'ask a model with attn_implementation="eager"'
        )
    queries = query.shape[2]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    causal = attention_mask is None and queries > 1 and is_causal
    if causal:
        # Of a cache with room for more, the keys past the last query are empty: the diagonal starts
        # at the first key.
        key, value = key[:, :, :queries], value[:, :, :queries]
        position_bias = None if position_bias is None else position_bias[..., :queries]
    o = attention(
        # The result is then dense in the layout that the layer wants.
        *(tensor.transpose(1, 2) for tensor in (query, key, value)),
        layout="bshd",
        scale=scaling,
        softcap=softcap or 0.0,
        mask=(attention_mask, position_bias),
        causal=causal,
        sinks=s_aux,
    )
    return o, None
