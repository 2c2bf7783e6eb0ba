"""Ops that choose from the last dimension: the largest, a sample, the experts of a gate."""

from onepass._types import A, Array, DTypeLike, Integer, Mask, Number, Out, Results, Window, op


@op
def topk(
    x: A,
    k: int,
    *,
    sorted: bool = True,
    target: Array | None = None,
    scale: Number = 1.0,
    temperature: Number = 1.0,
    softcap: float = 0.0,
    mask: Mask = None,
    lengths: Array | None = None,
    causal: bool = False,
    window: Window = None,
    dtype: DTypeLike = None,
    index_dtype: DTypeLike = None,
    return_lse: bool = False,
    out: Out = None,
    variant: str = "",
) -> tuple[A, ...]:
    """(values, indices) of the k largest logits of each row; of equal ones the lower
    index comes first.

    sorted: from the largest down; else by index.
    target: a token a row, int32 or int64: adds (its log-probability, how many tokens come before
    it). index_dtype: int32, or int64 (the default).
    return_lse: adds log Σ exp(z) of the whole row, before what `target` adds.

    {logits}
    {output}

    Example:
        >>> onepass.topk(np.array([1.0, 3.0, 2.0]), 2)
        (array([3., 2.]), array([1, 2]))
    """


@op
def softmax_topk(
    x: A,
    k: int,
    *,
    values: str = "probability",
    sorted: bool = True,
    target: Array | None = None,
    scale: Number = 1.0,
    temperature: Number = 1.0,
    softcap: float = 0.0,
    mask: Mask = None,
    lengths: Array | None = None,
    causal: bool = False,
    window: Window = None,
    dtype: DTypeLike = None,
    index_dtype: DTypeLike = None,
    return_lse: bool = False,
    out: Out = None,
    variant: str = "",
) -> tuple[A, ...]:
    """(values, indices) of the k likeliest of each row, without writing the softmax out.

    values: "probability", "log_probability", "logit", or "renormalized" (over the k alone).
    sorted: from the largest down; else by index.
    target: a token a row, int32 or int64: adds (its log-probability, how many tokens come before
    it). index_dtype: int32, or int64 (the default).
    return_lse: adds log Σ exp(z) of the whole row, before what `target` adds.

    {logits}
    {output}

    Example:
        >>> onepass.softmax_topk(np.zeros(4), 2)
        (array([0.25, 0.25]), array([0, 1]))
    """


@op
def sample(
    x: A,
    *,
    temperature: Number = 1.0,
    top_k: Integer = 0,
    top_p: Number = 1.0,
    min_p: Number = 0.0,
    seed: Integer = 0,
    offset: Integer = 0,
    scale: Number = 1.0,
    softcap: float = 0.0,
    mask: Mask = None,
    lengths: Array | None = None,
    causal: bool = False,
    window: Window = None,
    index_dtype: DTypeLike = None,
    return_logprob: bool = False,
    return_valid: bool = False,
    out: Out = None,
    variant: str = "",
) -> Results:
    """A token of each row, drawn with the probabilities that the filters leave; −1 where there
    is none to draw.

    temperature: 0 takes the likeliest token.
    top_k: the k likeliest stay; 0: all. top_p: of these as few as have this probability together;
    1: all. min_p: what has at least this part of the likeliest one's probability stays; 0: all.
    seed, offset: a row's draw depends on its logits and these alone; of one seed for all rows
    each makes another.
        Raise `offset` with every token of a sequence. Either is 64 bits: −2⁶³ to 2⁶⁴ − 1, so
        that −1 is 2⁶⁴ − 1.
    return_logprob: adds the token's log-probability before any filter.
    return_valid: adds a uint8 array, 0 where the row has a NaN or nothing to choose from.
    All of these but the last two are one value, or an array with one a row.

    {logits}
    {output}

    Example:
        >>> onepass.sample(np.array([[0.0, 9.0, 0.0]]), temperature=0.0)
        array([1])
    """


@op
def gate(
    scores: A,
    k: int,
    *,
    score: str = "softmax",
    bias: Array | None = None,
    renormalize: bool = False,
    scale: float = 1.0,
    dtype: DTypeLike = None,
    index_dtype: DTypeLike = None,
    out: Out = None,
    variant: str = "",
) -> tuple[A, A]:
    """(weights, experts) of each token: the k experts with the largest score, largest first.

    score: "softmax" or "sigmoid".
    bias: one an expert; added to the scores to choose by, not to the weights.
    renormalize: the chosen weights add up to 1.
    scale: a factor of the weights.
    index_dtype: int32, or int64 (the default).

    {output}

    Example:
        >>> onepass.gate(np.array([[0.0, 1.0, 1.0]]), 2, renormalize=True)
        (array([[0.5, 0.5]]), array([[1, 2]]))
    """
