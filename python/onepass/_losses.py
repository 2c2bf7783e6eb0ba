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

    target: class indices, int32 or int64, of x's shape without the axis; rows whose target is
        `ignore_index` have loss 0 and do not count. Or class probabilities q, floating, of x's
        shape: the loss then has Σ q·z in place of z[target].
    weight: floating, one per class: multiplies the class's lse − z. See docs/numerics.md.
    reduction: "none", "sum", or "mean": the sum divided by the sum of the targets' weights over the
        rows that count; 0 if none does.
    return_lse: returns (loss, lse); passing lse on saves `cross_entropy_backward` a pass over x.

    {logits}
    {output}
    {batch_invariant}

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
    """The gradient dx, from the gradient of the loss. Pass cross_entropy's options.

    lse: as cross_entropy returned it; None: computed again, in one more pass over x.
    out: may be x.

    {logits}
    {output}
    {batch_invariant}

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
    """(loss, its gradient dx) with one read of x. With reduction "none", dx is the gradient of the
    sum of all losses.

    return_lse: returns (loss, dx, lse).

    {logits}
    dtype: of the loss; None: x's. The gradient has x's. An array in `out` has its own.
    out: an array for the loss, or a tuple with an array or None for each result: `out=(None, x)`
        writes the gradient over x.
    {variant}
    {batch_invariant}

    Example:
        >>> loss, dx = onepass.cross_entropy_with_gradient(np.zeros((1, 2)), np.array([0]))
        >>> dx
        array([[-0.5,  0.5]])
    """
