"""Dropout and the like: functions of `nn.functional` that draw random numbers in training."""

from __future__ import annotations

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def extra_repr(self) -> str:
        """See Module."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, each element becomes 0 with probability p. ValueError for p outside [0, 1]."""

    def forward(self, input: Tensor) -> Tensor:
        """`nn.functional.dropout`, with p and inplace as they were given."""
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """In training, each channel of (samples, channels, length) becomes 0 with probability p. ValueError for p outside [0, 1]."""

    def forward(self, input: Tensor) -> Tensor:
        """`nn.functional.dropout1d`, with p and inplace as they were given."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """In training, each channel of (samples, channels, height, width) becomes 0 with probability p. ValueError for p outside [0, 1]."""

    def forward(self, input: Tensor) -> Tensor:
        """`nn.functional.dropout2d`, with p and inplace as they were given."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """In training, each channel of (samples, channels, depth, height, width) becomes 0 with probability p. ValueError for p outside [0, 1]."""

    def forward(self, input: Tensor) -> Tensor:
        """`nn.functional.dropout3d`, with p and inplace as they were given."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout to selu's lower limit, which keeps mean and variance. ValueError for p outside [0, 1]."""

    def forward(self, input: Tensor) -> Tensor:
        """`nn.functional.alpha_dropout` with p; never in place, as in PyTorch."""
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """`AlphaDropout` of whole channels. ValueError for p outside [0, 1]."""

    def forward(self, input: Tensor) -> Tensor:
        """`nn.functional.feature_alpha_dropout` with p; never in place, as in PyTorch."""
        return F.feature_alpha_dropout(input, self.p, self.training)
