"""Modules to use in place of those of torch.nn."""

from typing import Any

from torch import Tensor, nn

from onepass.torch._functions import cross_entropy, softmax


class _WithOptions(nn.Module):
    """Keeps a function's options for every call."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.options.items())


class Softmax(_WithOptions):
    """`onepass.torch.softmax` along `dim`, with its options.

    Example:
        >>> onepass.torch.nn.Softmax(dim=-1, temperature=0.7)
        Softmax(dim=-1, temperature=0.7)
    """

    def __init__(self, dim: int = -1, **options: Any) -> None:
        super().__init__(dim=dim, **options)

    def forward(self, x: Tensor) -> Tensor:
        return softmax(x, **self.options)


class CrossEntropyLoss(_WithOptions):
    """`onepass.torch.cross_entropy` with class weights and its options; classes are the second
    dimension, as in torch.

    Example:
        >>> onepass.torch.nn.CrossEntropyLoss(label_smoothing=0.1)
        CrossEntropyLoss(label_smoothing=0.1)
    """

    def __init__(self, weight: Tensor | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.weight: Tensor | None
        self.register_buffer("weight", weight)  # goes where the module goes

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(x, target, weight=self.weight, **self.options)
