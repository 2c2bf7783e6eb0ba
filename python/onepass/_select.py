"""Top-k, sampling and MoE routing over the last dimension."""

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
    """(values, indices) of the k largest logits per row. Ties go to the lower index.

    sorted: largest first; False: by index.
    {topk}

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
    """(values, indices) of the k likeliest elements per row, without writing the softmax to memory.

    values: "probability", "log_probability", "logit", or "renormalized" (over the k alone).
    sorted: largest first; False: by index.
    {topk}

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
    """Draws one token per row from the probabilities that the filters leave; −1 where there is none
    to draw.

    Each of these is one value, or an array with one per row:

    temperature: 0: greedy, the likeliest token.
    top_k: keeps the k likeliest tokens; 0: all.
    top_p: of these, keeps the fewest of the likeliest that reach this probability; 1: all.
    min_p: keeps tokens of at least min_p times the largest probability; 0: all.
    seed, offset: a row's draw depends on its logits, seed and offset alone. Given one seed for all
        rows, each row derives its own from its number. Raise `offset` with every token of a
        sequence. Both have 64 bits, −2⁶³ to 2⁶⁴ − 1, so −1 is 2⁶⁴ − 1.

    return_logprob: adds the token's log-probability before any filter.
    return_valid: adds a uint8 array, 0 for a row with a NaN or no token to draw.

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
    """MoE routing: (weights, experts) of the k experts with the largest score per token, largest
    first.

    score: "softmax" or "sigmoid".
    bias: one per expert: added to the scores for the selection alone, not to the weights.
    renormalize: divides the k weights by their sum.
    scale: multiplies the weights.
    index_dtype: int32, or int64 (the default).

    {output}

    Example:
        >>> onepass.gate(np.array([[0.0, 1.0, 1.0]]), 2, renormalize=True)
        (array([[0.5, 0.5]]), array([[1, 2]]))
    """
