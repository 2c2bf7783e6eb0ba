"""Softmax and everything built on it, reading each input byte from memory once.

Every function takes arrays of NumPy, PyTorch, CuPy, JAX or any other library with DLPack, on a CPU
or a CUDA GPU, reads them without copying and returns arrays of the same kind:

    >>> import numpy as np, onepass
    >>> onepass.softmax(np.zeros((2, 4), np.float32))
    array([[0.25, 0.25, 0.25, 0.25],
           [0.25, 0.25, 0.25, 0.25]], dtype=float32)

On a GPU a call queues its work on the current stream of the array's library. `onepass.torch` has
the same ops as PyTorch operators, with gradients and for torch.compile.
"""

from onepass import _native
from onepass._attention import (
    attention,
    attention_backward,
    merge_attention,
    merge_attention_backward,
)
from onepass._losses import cross_entropy, cross_entropy_backward, cross_entropy_with_gradient
from onepass._plans import explain, get_num_threads, has_cuda, set_num_threads
from onepass._rows import (
    log_softmax,
    log_softmax_backward,
    logsumexp,
    softmax,
    softmax_backward,
)
from onepass._select import gate, sample, softmax_topk, topk

__version__: str = _native.version

__all__ = [
    "__version__",
    "attention",
    "attention_backward",
    "cross_entropy",
    "cross_entropy_backward",
    "cross_entropy_with_gradient",
    "explain",
    "gate",
    "get_num_threads",
    "has_cuda",
    "log_softmax",
    "log_softmax_backward",
    "logsumexp",
    "merge_attention",
    "merge_attention_backward",
    "sample",
    "set_num_threads",
    "softmax",
    "softmax_backward",
    "softmax_topk",
    "topk",
]
