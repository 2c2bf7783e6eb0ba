"""Attention that never writes its scores to memory, and the merge of its results."""

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
    return_lse: the lse is float32, batch × heads × queries (heads × tokens with q_offsets) in
        either layout.
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
