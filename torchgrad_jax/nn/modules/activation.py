"""Activations and losses: functions of `nn.functional` with their options kept."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.loss import reduction_of as legacy
from torchgrad_jax.nn.modules.module import Module

__all__ = ["CrossEntropyLoss", "GELU", "L1Loss", "LogSoftmax", "MSELoss", "NLLLoss", "ReLU", "Sigmoid", "Softmax", "Tanh"]


class ReLU(Module):
    """max(input, 0)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """See `F.relu`."""
        return F.relu(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """See Module."""
        return "inplace=True" if self.inplace else ""


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """See `torch.tanh`."""
        return input.tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-input))."""

    def forward(self, input: Tensor) -> Tensor:
        """See `torch.sigmoid`."""
        return input.sigmoid()


class GELU(Module):
    """input times the normal distribution function of it."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """See `F.gelu`."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """See Module."""
        return f"approximate={self.approximate!r}"


class Softmax(Module):
    """exp(input) over its sum along `dim`."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """See `F.softmax`."""
        return F.softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """See Module."""
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """The logarithm of the softmax along `dim`."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """See `F.log_softmax`."""
        return F.log_softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """See Module."""
        return f"dim={self.dim}"


# ---------------------------------------------------------------------- losses


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that PyTorch's former two arguments mean, if they are given."""
    if size_average is None and reduce is None:
        return reduction
    return legacy(reduction, size_average, reduce)


class _Loss(Module):
    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction_of(size_average, reduce, reduction)


class MSELoss(_Loss):
    """The squared differences; their mean or sum."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """See `F.mse_loss`."""
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """The absolute differences; their mean or sum."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """See `F.l1_loss`."""
        return F.l1_loss(input, target, reduction=self.reduction)


class _WeightedLoss(_Loss):
    weight: Tensor | None

    def __init__(self, weight: Tensor | None, size_average: bool | None, ignore_index: int, reduce: bool | None, reduction: str) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index


class NLLLoss(_WeightedLoss):
    """Minus the log-probability of the target class, weighted by class."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, ignore_index, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """See `F.nll_loss`."""
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class CrossEntropyLoss(_WeightedLoss):
    """NLLLoss of the log-softmax, or the cross entropy with target probabilities."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None,
        reduction: str = "mean", label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, ignore_index, reduce, reduction)
        self.label_smoothing: Any = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """See `F.cross_entropy`."""
        return F.cross_entropy(
            input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction, label_smoothing=self.label_smoothing
        )
