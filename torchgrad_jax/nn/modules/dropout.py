"""Dropout and the like: functions of `nn.functional` that draw random numbers in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    function: ClassVar[Callable[..., Any]]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        """The function of this module's name, with p and inplace as they were given."""
        return type(self).function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        """See Module."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, each element becomes 0 with probability p. ValueError for p outside [0, 1]."""

    function = staticmethod(F.dropout)


class Dropout1d(_DropoutNd):
    """In training, each channel of (samples, channels, length) becomes 0 with probability p. ValueError for p outside [0, 1]."""

    function = staticmethod(F.dropout1d)


class Dropout2d(_DropoutNd):
    """In training, each channel of (samples, channels, height, width) becomes 0 with probability p. ValueError for p outside [0, 1]."""

    function = staticmethod(F.dropout2d)


class Dropout3d(_DropoutNd):
    """In training, each channel of (samples, channels, depth, height, width) becomes 0 with probability p. ValueError for p outside [0, 1]."""

    function = staticmethod(F.dropout3d)


class AlphaDropout(_DropoutNd):
    """Dropout to selu's lower limit, which keeps mean and variance. ValueError for p outside [0, 1]."""

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_DropoutNd):
    """`AlphaDropout` of whole channels. ValueError for p outside [0, 1]."""

    function = staticmethod(F.feature_alpha_dropout)
