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
    """exp(z) / Σ exp(z) along an axis; with `return_lse`, the pair of it and log Σ exp(z).

    A row that is hidden entirely gives zeros. A NaN makes its own row NaN and affects no other.

    {logits}
    {output}
    {batch_invariant}

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
    """z − log Σ exp(z) along an axis; with `return_lse`, the pair of it and log Σ exp(z).

    {logits}
    {output}
    {batch_invariant}

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
    """log Σ exp(z) along an axis, which the result lacks.

    {logits}
    {output}
    {batch_invariant}

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
    """The gradient dx, from y = softmax(x) and the gradient dy. Pass softmax's options.

    x: the input of softmax; required, and read, only with a softcap.

    {logits}
    {output}
    {batch_invariant}

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
    """The gradient dx, from y = log_softmax(x) and the gradient dy. Pass log_softmax's options.

    x: the input of log_softmax; required, and read, only with a softcap.

    {logits}
    {output}
    {batch_invariant}

    Example:
        >>> y = onepass.log_softmax(np.zeros((1, 2)))
        >>> onepass.log_softmax_backward(y, np.array([[1.0, 0.0]]))
        array([[ 0.5, -0.5]])
    """
