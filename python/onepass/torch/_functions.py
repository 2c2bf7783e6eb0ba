"""The operators with named arguments and defaults, as users of torch.nn.functional expect them.

Options are those of the functions of the same name in `onepass`; `dim` is their `axis`.
"""

from typing import Any, TypeAlias

import torch
from torch import Tensor

import onepass
from onepass._types import documented, refuse_foreign
from onepass.torch import _attention, _losses, _rows, _select
from onepass.torch._schema import Logits, number_or_rows, pack_mask, signed, straight

_Window = tuple[int, int] | None
_Mask: TypeAlias = Tensor | tuple[Tensor | None, Tensor | None] | None


def _row_function(name: str, summary: str) -> Any:
    op = getattr(_rows, name)

    def function(
        x: Tensor,
        dim: int = -1,
        *,
        scale: float | Tensor = 1.0,
        temperature: float | Tensor = 1.0,
        softcap: float = 0.0,
        mask: _Mask = None,
        lengths: Tensor | None = None,
        causal: bool = False,
        window: _Window = None,
        dtype: torch.dtype | None = None,
        batch_invariant: bool = False,
    ) -> Tensor:
        logits = Logits.pack(scale, temperature, softcap, mask, lengths, causal, window)
        return op(x, dim, *logits, dtype, batch_invariant)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{summary}

    {{logits}}
    dtype: of the result; None: x's.
    {{batch_invariant}}

    Example:
        >>> onepass.torch.{name}(torch.zeros(1, 2)).shape[0]
        1
    """
    return straight(getattr(onepass, name))(documented(function))


softmax = _row_function("softmax", "exp(z) / Σ exp(z) along a dimension, with a gradient for x.")
log_softmax = _row_function(
    "log_softmax", "z − log Σ exp(z) along a dimension, with a gradient for x."
)
logsumexp = _row_function("logsumexp", "log Σ exp(z) along a dimension, with a gradient for x.")


@documented
def cross_entropy(
    x: Tensor,
    target: Tensor,
    dim: int | None = None,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
    return_lse: bool = False,
    scale: float | Tensor = 1.0,
    temperature: float | Tensor = 1.0,
    softcap: float = 0.0,
    mask: _Mask = None,
    lengths: Tensor | None = None,
    causal: bool = False,
    window: _Window = None,
    dtype: torch.dtype | None = None,
    batch_invariant: bool = False,
    **foreign: Any,
) -> Any:
    """The loss for class indices or probabilities, with a gradient for x that reads x once.

    target: class indices, integers of x's shape without `dim`, or class probabilities, floating and
        of x's shape.
    weight: floating, one per class, as in torch.nn.functional.cross_entropy.
    dim: the dimension of the classes; None: the second, or the only one, as in
        torch.nn.functional.cross_entropy.
    return_lse: returns (loss, lse). The lse has no gradient; `z_loss` is a term lse² that has one.

    {logits}
    dtype: of the loss; None: x's.
    {batch_invariant}

    Example:
        >>> round(onepass.torch.cross_entropy(torch.zeros(2, 4), torch.tensor([1, 2])).item(), 4)
        1.3863
    """
    if foreign:
        refuse_foreign("cross_entropy", foreign)
    if isinstance(dim, Tensor):
        raise TypeError("dim: a tensor is none; class weights are `weight`, by its name")
    if dim is None:
        dim = min(1, x.dim() - 1)
    logits = Logits.pack(scale, temperature, softcap, mask, lengths, causal, window)
    loss, lse = _losses.cross_entropy(
        x,
        target,
        dim,
        *logits,
        weight,
        ignore_index,
        label_smoothing,
        z_loss,
        reduction,
        dtype,
        batch_invariant,
    )
    return (loss, lse) if return_lse else loss


@straight(onepass.softmax_topk)
@documented
def softmax_topk(
    x: Tensor,
    k: int,
    *,
    values: str = "probability",
    sorted: bool = True,
    scale: float | Tensor = 1.0,
    temperature: float | Tensor = 1.0,
    softcap: float = 0.0,
    mask: _Mask = None,
    lengths: Tensor | None = None,
    causal: bool = False,
    window: _Window = None,
    dtype: torch.dtype | None = None,
    index_dtype: torch.dtype = torch.int64,
) -> tuple[Tensor, Tensor]:
    """(values, indices) of the k likeliest elements per row, without a gradient.

    values: "probability", "log_probability", "logit", or "renormalized" (over the k alone).

    {logits}

    Example:
        >>> onepass.torch.softmax_topk(torch.zeros(4), 2)[1].tolist()
        [0, 1]
    """
    logits = Logits.pack(scale, temperature, softcap, mask, lengths, causal, window)
    return _select.softmax_topk(x, k, values, sorted, *logits, dtype, index_dtype)


@straight(onepass.topk)
def topk(x: Tensor, k: int, **options: Any) -> tuple[Tensor, Tensor]:
    """(values, indices) of the k largest logits per row: `softmax_topk` with values="logit".

    Example:
        >>> onepass.torch.topk(torch.tensor([1.0, 3.0, 2.0]), 2)[1].tolist()
        [1, 2]
    """
    return softmax_topk(x, k, values="logit", **options)


@straight(onepass.sample)
@documented
def sample(
    x: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    top_k: int | Tensor = 0,
    top_p: float | Tensor = 1.0,
    min_p: float | Tensor = 0.0,
    seed: int | Tensor = 0,
    offset: int | Tensor = 0,
    scale: float | Tensor = 1.0,
    softcap: float = 0.0,
    mask: _Mask = None,
    lengths: Tensor | None = None,
    causal: bool = False,
    window: _Window = None,
    index_dtype: torch.dtype = torch.int64,
) -> Tensor:
    """Draws one token per row, with the options of `onepass.sample`.

    In a CUDA graph, pass `seed` or `offset` as tensors and change their values: a graph captures
    numbers as they are.

    {logits}

    Example:
        >>> onepass.torch.sample(torch.tensor([[0.0, 9.0]]), temperature=0.0).tolist()
        [1]
    """
    logits = Logits.pack(scale, temperature, softcap, mask, lengths, causal, window)
    seed, offset = signed("seed", seed), signed("offset", offset)
    filters = ((top_k, 0), (top_p, 1.0), (min_p, 0.0), (seed, 0), (offset, 0))
    pairs = [part for value, otherwise in filters for part in number_or_rows(value, otherwise)]
    return _select.sample(x, *pairs, *logits, index_dtype)


@straight(onepass.gate)
def gate(
    scores: Tensor,
    k: int,
    *,
    score: str = "softmax",
    bias: Tensor | None = None,
    renormalize: bool = False,
    scale: float = 1.0,
    dtype: torch.dtype | None = None,
    index_dtype: torch.dtype = torch.int64,
) -> tuple[Tensor, Tensor]:
    """(weights, experts) per token, with the options of `onepass.gate`. Without a gradient.

    Example:
        >>> onepass.torch.gate(torch.tensor([[0.0, 1.0, 1.0]]), 2)[1].tolist()
        [[1, 2]]
    """
    return _select.gate(scores, k, score, bias, renormalize, scale, dtype, index_dtype)


@straight(onepass.attention)
@documented
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    mask: _Mask = None,
    lengths: Tensor | None = None,
    causal: bool = False,
    window: _Window = None,
    alibi: Tensor | None = None,
    sinks: Tensor | None = None,
    q_offsets: Tensor | None = None,
    kv_offsets: Tensor | None = None,
    pages: Tensor | None = None,
    check_pages: bool = False,
    split: int = 0,
    dropout_p: float = 0.0,
    layout: str = "bhsd",
    dtype: torch.dtype | None = None,
    return_lse: bool = False,
    batch_invariant: bool = False,
    **foreign: Any,
) -> Any:
    """o = softmax(z) · v, or with `return_lse` (o, lse), with gradients for q, k, v, the floating
    mask and the sinks.

    Neither keys in pages nor the slopes have a gradient. The gradients are the same bits on every
    run.

    {attention}
    {keys}
    dtype: of o; None: q's.

    Example:
        >>> q, k = torch.zeros(1, 4, 1, 8), torch.ones(1, 2, 5, 8)
        >>> onepass.torch.attention(q, k, k)[0, 0, 0, 0].item()
        1.0
    """
    if foreign:
        refuse_foreign("attention", foreign)
    if dropout_p != 0:
        raise NotImplementedError(f"dropout_p: {dropout_p} is not 0: attention has no dropout")
    hidden = pack_mask(mask, lengths, causal, window)
    keys = (alibi, sinks, q_offsets, kv_offsets, pages, check_pages, split)
    o, lse = _attention.attention(
        q, k, v, scale, softcap, *hidden, *keys, layout, dtype, batch_invariant
    )
    return (o, lse) if return_lse else o


@straight(onepass.merge_attention)
def merge_attention(
    a: Tensor,
    lse_a: Tensor,
    b: Tensor,
    lse_b: Tensor,
    *,
    layout: str = "bhsd",
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Merges the results of the same queries over different keys into (o, lse) over all these keys,
    with gradients for all four.

    Example:
        >>> o, lse = torch.zeros(1, 8), torch.zeros(1)
        >>> onepass.torch.merge_attention(o, lse, o + 2, lse)[0][0, 0].item()
        1.0
    """
    return _attention.merge_attention(a, lse_a, b, lse_b, layout, dtype)
