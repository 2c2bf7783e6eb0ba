"""softmax, log_softmax and logsumexp along an axis, and the gradients of the first two."""

from onepass._types import A, Array, DTypeLike, Mask, Number, Out, Results, Window, op


@op
def softmax(
    x: A,
    axis: int = -1,
    *,
    scale: Number = 1.0,
    temperature: Number = 1.0,
    softcap: float = 0.0,
    mask: Mask = None,
    lengths: Array | None = None,
    causal: bool = False,
    window: Window = None,
    dtype: DTypeLike = None,
    return_lse: bool = False,
    out: Out = None,
    variant: str = "",
    batch_invariant: bool = False,
) -> Results:
    """exp(z) / Σ exp(z) along an axis; with `return_lse` a pair of it and log Σ exp(z).

    A row that is hidden as a whole gives zeros, a NaN makes its own row NaN and no other.

    {logits}
    {output}
    batch_invariant: a row's bits do not depend on how many rows there are.

    Example:
        >>> x = np.array([[0.0, 0.0, 5.0]], np.float32)
        >>> onepass.softmax(x, lengths=np.array([2]))
        array([[0.5, 0.5, 0. ]], dtype=float32)
    """


@op
def log_softmax(
    x: A,
    axis: int = -1,
    *,
    scale: Number = 1.0,
    temperature: Number = 1.0,
    softcap: float = 0.0,
    mask: Mask = None,
    lengths: Array | None = None,
    causal: bool = False,
    window: Window = None,
    dtype: DTypeLike = None,
    return_lse: bool = False,
    out: Out = None,
    variant: str = "",
    batch_invariant: bool = False,
) -> Results:
    """z − log Σ exp(z) along an axis; with `return_lse` a pair of it and log Σ exp(z).

    {logits}
    {output}
    batch_invariant: a row's bits do not depend on how many rows there are.

    Example:
        >>> onepass.log_softmax(np.zeros(4, np.float32)).round(4)
        array([-1.3863, -1.3863, -1.3863, -1.3863], dtype=float32)
    """


@op
def logsumexp(
    x: A,
    axis: int = -1,
    *,
    scale: Number = 1.0,
    temperature: Number = 1.0,
    softcap: float = 0.0,
    mask: Mask = None,
    lengths: Array | None = None,
    causal: bool = False,
    window: Window = None,
    dtype: DTypeLike = None,
    out: Out = None,
    variant: str = "",
    batch_invariant: bool = False,
) -> A:
    """log Σ exp(z) along an axis, which the result does not have.

    {logits}
    {output}
    batch_invariant: a row's bits do not depend on how many rows there are.

    Example:
        >>> onepass.logsumexp(np.array([[1000.0, 1000.0]])).round(4)
        array([1000.6931])
    """


@op
def softmax_backward(
    y: A,
    dy: Array,
    axis: int = -1,
    *,
    x: Array | None = None,
    scale: Number = 1.0,
    temperature: Number = 1.0,
    softcap: float = 0.0,
    mask: Mask = None,
    lengths: Array | None = None,
    causal: bool = False,
    window: Window = None,
    dtype: DTypeLike = None,
    out: Out = None,
    variant: str = "",
    batch_invariant: bool = False,
) -> A:
    """The gradient in x, from y = softmax(x) and the gradient in y. Takes the options
    that softmax got.

    x: the input of softmax; needed, and read, only with a softcap.

    {logits}
    {output}
    batch_invariant: a row's bits do not depend on how many rows there are.

    Example:
        >>> y = onepass.softmax(np.zeros((1, 2)))
        >>> onepass.softmax_backward(y, np.array([[1.0, 0.0]]))
        array([[ 0.25, -0.25]])
    """


@op
def log_softmax_backward(
    y: A,
    dy: Array,
    axis: int = -1,
    *,
    x: Array | None = None,
    scale: Number = 1.0,
    temperature: Number = 1.0,
    softcap: float = 0.0,
    mask: Mask = None,
    lengths: Array | None = None,
    causal: bool = False,
    window: Window = None,
    dtype: DTypeLike = None,
    out: Out = None,
    variant: str = "",
    batch_invariant: bool = False,
) -> A:
    """The gradient in x, from y = log_softmax(x) and the gradient in y. Takes the options that
    log_softmax got.

    x: the input of log_softmax; needed, and read, only with a softcap.

    {logits}
    {output}
    batch_invariant: a row's bits do not depend on how many rows there are.

    Example:
        >>> y = onepass.log_softmax(np.zeros((1, 2)))
        >>> onepass.log_softmax_backward(y, np.array([[1.0, 0.0]]))
        array([[ 0.5, -0.5]])
    """
