"""The ops as operators of PyTorch: with gradients, for torch.compile(fullgraph=True)
and CUDA graphs.

    >>> import torch, onepass.torch
    >>> x = torch.zeros(2, 4, requires_grad=True)
    >>> onepass.torch.cross_entropy(x, torch.tensor([0, 3])).backward()
    >>> x.grad[0].tolist()
    [-0.375, 0.125, 0.125, 0.125]

softmax, log_softmax, logsumexp and cross_entropy have gradients for their first argument and treat
scales, temperatures and masks as constants. attention has gradients for q, k, v, the additive mask
and the sinks, merge_attention for all that it merges; `onepass.torch.transformers.register()` makes
Hugging Face models use and train with it. Without gradients, `onepass.softmax` and the other
functions of `onepass` are the fastest way to call an op on the same tensors, since they bypass
PyTorch's dispatcher."""

from onepass.torch import nn
from onepass.torch._functions import (
    attention,
    cross_entropy,
    gate,
    log_softmax,
    logsumexp,
    merge_attention,
    sample,
    softmax,
    softmax_topk,
    topk,
)

__all__ = [
    "attention",
    "cross_entropy",
    "gate",
    "log_softmax",
    "logsumexp",
    "merge_attention",
    "nn",
    "sample",
    "softmax",
    "softmax_topk",
    "topk",
]
