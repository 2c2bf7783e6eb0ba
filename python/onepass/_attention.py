"""Attention whose scores are never in memory, and how results over different keys become one."""

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
    """o = softmax(z) · v, z made from q · k in the same pass; with `return_lse` a pair of o
    and log Σ exp(z).

    {attention}
    dtype: of o; None: q's. Where there is an `out`, its own counts.
    out: an array for o, or with `return_lse` a tuple for both; neither may be an input. variant:
    the name of a variant to force; "": the dispatcher chooses (see `explain`). return_lse: the lse
    is float32, batch × heads × queries (heads × tokens with q_offsets) in either layout. split:
    keys a part where they are cut over threads or blocks; 0: the dispatcher's choice. dropout_p: 0.
    There is no dropout; another probability is an error.
    batch_invariant: a query's bits do not depend on the batch.

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
    """(o, lse) over all the keys, from what two calls found for the same queries
    over different ones.

    a, b: results of `attention`, of one shape; lse_a, lse_b: what `return_lse` gave with them.
    layout: as `attention` got it. Of a and b in "bhsd" any shape will do whose lse lacks the last
    dimension. dtype: of o; None: a's. Where there is an `out`, its own counts.
    out: an array for o, or a tuple for both; o may be a or b, lse one of theirs.

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
