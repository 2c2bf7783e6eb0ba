"""Attention that never writes its scores to memory, the merge of its results, and the gradients of
both."""

from onepass._types import A, Array, DTypeLike, Mask, Out, Results, Window, op


@op
def attention(
    q: A,
    k: Array,
    v: Array,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    mask: Mask = None,
    lengths: Array | None = None,
    causal: bool = False,
    window: Window = None,
    alibi: Array | None = None,
    sinks: Array | None = None,
    q_offsets: Array | None = None,
    kv_offsets: Array | None = None,
    pages: Array | None = None,
    check_pages: bool = False,
    split: int = 0,
    dropout_p: float = 0.0,
    layout: str = "bhsd",
    dtype: DTypeLike = None,
    return_lse: bool = False,
    out: Out = None,
    variant: str = "",
    batch_invariant: bool = False,
) -> Results:
    """o = softmax(z) · v in one pass over the keys; with `return_lse`, (o, log Σ exp(z)).

    {attention}
    {keys}
    return_lse: the lse is float32 (of float64 inputs float64), batch × heads × queries (heads ×
        tokens with q_offsets) in either layout.
    dtype: of o; None: q's. An array in `out` has its own.
    out: an array for o, or with `return_lse` a tuple for both; neither may be an input.
    {variant}

    Example:
        >>> q, k = np.zeros((1, 2, 1, 8), np.float32), np.zeros((1, 1, 4, 8), np.float32)
        >>> v = np.arange(32, dtype=np.float32).reshape(k.shape)
        >>> o, lse = onepass.attention(q, k, v, lengths=np.array([2]), return_lse=True)
        >>> o[0, 0, 0]
        array([ 4.,  5.,  6.,  7.,  8.,  9., 10., 11.], dtype=float32)
        >>> np.exp(lse[0, :, 0])
        array([2., 2.], dtype=float32)
    """


@op
def attention_backward(
    q: A,
    k: Array,
    v: Array,
    o: Array,
    lse: Array,
    d_o: Array,
    d_lse: Array | None = None,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    mask: Mask = None,
    lengths: Array | None = None,
    causal: bool = False,
    window: Window = None,
    alibi: Array | None = None,
    sinks: Array | None = None,
    q_offsets: Array | None = None,
    kv_offsets: Array | None = None,
    pages: Array | None = None,
    return_d_sinks: bool = False,
    return_d_mask: bool = False,
    accumulate: bool = False,
    deterministic: bool = True,
    layout: str = "bhsd",
    dtype: DTypeLike = None,
    out: Out = None,
    variant: str = "",
) -> tuple[A, ...]:
    """The gradients (d_q, d_k, d_v), from the forward's o and lse and the gradient d_o. Pass
    attention's options.

    o, lse: as `attention` returned them, with `return_lse`. d_o: the gradient of o, in its shape.
    d_lse: the gradient of lse; None: 0.
    return_d_sinks, return_d_mask: adds the gradient of the sinks, that of the floating mask, in
        their shapes and dtypes; where the mask broadcasts, a sum.
    accumulate: adds to what the arrays for d_q, d_k and d_v in `out` hold.
    deterministic: the same bits on every run. Without it a variant may sum in any order.

    {attention}
    Keys in pages have no gradient, nor have the slopes.

    dtype: of d_q, d_k and d_v: q's (the default) or float32. Arrays in `out` have their own.
    out: an array for d_q, or a tuple with an array or None for each result; none may be an input.
    {variant}

    Example:
        >>> q, k = np.zeros((1, 1, 1, 8), np.float32), np.zeros((1, 1, 4, 8), np.float32)
        >>> o, lse = onepass.attention(q, k, k, return_lse=True)
        >>> d_q, d_k, d_v = onepass.attention_backward(q, k, k, o, lse, np.ones_like(o))
        >>> d_v[0, 0, :, 0]
        array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """


@op
def merge_attention(
    a: A,
    lse_a: Array,
    b: Array,
    lse_b: Array,
    *,
    layout: str = "bhsd",
    dtype: DTypeLike = None,
    out: Out = None,
) -> tuple[A, A]:
    """Merges the results of the same queries over different keys into (o, lse) over all these keys.

    a, b: results of `attention`, of one shape.
    lse_a, lse_b: their lse, from `return_lse`.
    layout: as `attention` got it. In "bhsd", a and b may have any shape, and each lse has it
        without the last dimension.
    dtype: of o; None: a's. An array in `out` has its own.
    out: an array for o, or a tuple for both; o may be a or b, and lse may be lse_a or lse_b.

    Example:
        >>> q, k = np.zeros((1, 1, 1, 8), np.float32), np.zeros((1, 1, 6, 8), np.float32)
        >>> v = np.arange(48, dtype=np.float32).reshape(k.shape)
        >>> first, last = slice(2), slice(2, 6)
        >>> parts = [onepass.attention(q, k[:, :, s], v[:, :, s], return_lse=True)
        ...          for s in (first, last)]
        >>> o, lse = onepass.merge_attention(*parts[0], *parts[1])
        >>> bool(np.allclose(o, onepass.attention(q, k, v)))
        True
    """


@op
def merge_attention_backward(
    a: A,
    lse_a: Array,
    b: Array,
    lse_b: Array,
    d_o: Array,
    d_lse: Array | None = None,
    *,
    layout: str = "bhsd",
    out: Out = None,
) -> tuple[A, A, A, A]:
    """The gradients (d_a, d_lse_a, d_b, d_lse_b), from that of the merged o. Each has the shape and
    dtype of what it is the gradient of.

    a, lse_a, b, lse_b, layout: as `merge_attention` got them.
    d_o, d_lse: the gradients of the merged o and lse; d_lse None: 0.
    out: an array for d_a, or a tuple with an array or None for each result; none may be an input.

    Example:
        >>> o, lse = np.zeros((1, 8), np.float32), np.zeros(1, np.float32)
        >>> onepass.merge_attention_backward(o, lse, o, lse, np.ones_like(o))[0][0, 0]
        np.float32(0.5)
    """
