"""The ops as operators of PyTorch: with gradients, for torch.compile(fullgraph=True)
and CUDA graphs.

    >>> import torch, onepass.torch
    >>> x = torch.zeros(2, 4, requires_grad=True)
    >>> onepass.torch.cross_entropy(x, torch.tensor([0, 3])).backward()
    >>> x.grad[0].tolist()
    [-0.375, 0.125, 0.125, 0.125]

softmax, log_softmax, logsumexp and cross_entropy have gradients in their first argument; scales,
temperatures and masks are taken as constants. attention computes forward only, and says so where a
gradient is asked for; `onepass.torch.transformers.register()` has models of Hugging Face use it.
For a call without gradients, `onepass.softmax` and its like on the same tensors are the shortest
way: they do not go through PyTorch's dispatcher."""

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
