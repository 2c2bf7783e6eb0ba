"""Cross-entropy of class indices or probabilities, its gradient, and both with one read
of the logits."""

from onepass._types import A, Array, DTypeLike, Mask, Number, Out, Results, Window, op


@op
def cross_entropy(
    x: A,
    target: Array,
    axis: int = -1,
    *,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
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
    """The loss lse − (1 − s)·z[target] − s·mean(z) + z_loss·lse², s being the label smoothing.

    target: int32 or int64, x's shape without the axis; rows of `ignore_index` have loss 0 and do
        not count. Or floating, of x's shape: the classes' probabilities q, and the loss has Σ q·z
        in place of z[target].
    weight: floating, one a class: a factor of each class's lse − z. See docs/numerics.md.
    reduction: "mean" over the rows that count, by the weights of their targets (0 where none does),
    "sum", or "none". return_lse: give (loss, lse); lse saves `cross_entropy_backward` a pass.

    {logits}
    {output}
    batch_invariant: a row's bits do not depend on how many rows there are.

    Example:
        >>> float(onepass.cross_entropy(np.zeros((2, 4)), np.array([1, -100])).round(4))
        1.3863
    """


@op
def cross_entropy_backward(
    x: A,
    target: Array,
    dloss: Array,
    lse: Array | None = None,
    axis: int = -1,
    *,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
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
    """The gradient in x, from the gradient in the loss. Takes the options that cross_entropy got.

    lse: as cross_entropy gave it; None: found again, with one more pass over x.
    out: may be x.

    {logits}
    {output}
    batch_invariant: a row's bits do not depend on how many rows there are.

    Example:
        >>> x, target = np.zeros((1, 2)), np.array([0])
        >>> onepass.cross_entropy_backward(x, target, np.array(1.0))
        array([[-0.5,  0.5]])
    """


@op
def cross_entropy_with_gradient(
    x: A,
    target: Array,
    axis: int = -1,
    *,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = "mean",
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
) -> tuple[A, ...]:
    """(loss, its gradient in x) with one read of x; of losses that are not reduced, the
    gradient of their sum.

    With `return_lse` the lse comes third.

    {logits}
    dtype: of the loss; None: x's. The gradient has x's. Where there is an `out`, its own counts.
    out: an array for the loss, or a tuple with one, or None, for each result: `out=(None, x)`
    writes the gradient
        over x.
    {variant}
    batch_invariant: a row's bits do not depend on how many rows there are.

    Example:
        >>> loss, dx = onepass.cross_entropy_with_gradient(np.zeros((1, 2)), np.array([0]))
        >>> dx
        array([[-0.5,  0.5]])
    """
