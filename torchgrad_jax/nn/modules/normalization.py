"""Normalization that keeps no statistics."""

from __future__ import annotations

import numbers
from typing import Any

import torchgrad_jax.nn.functional as F
import torchgrad_jax.nn.init as init
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.parameter import empty

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class _Scaled(Module):
    """What scales and perhaps shifts: at first by one and zero."""

    def _norm_put(self, shape: Any, weight: bool, bias: bool | None, device: Any, dtype: Any) -> None:
        """Register the parameters that are wanted; None for a bias that the module never has."""
        for name, wanted in (("weight", weight), ("bias", bias)):
            if wanted is not None:
                self.register_parameter(name, Parameter(empty(shape, device=device, dtype=dtype)) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale by one, shift by zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self._parameters.get("bias") is not None:
            init.zeros_(self.bias)


def _sizes(normalized_shape: Any) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)  # type: ignore[return-value] - an int


class LayerNorm(_Scaled):
    """The last dimensions, of sizes normalized_shape, brought to mean 0 and variance 1, then scaled and shifted."""

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._norm_put(self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """(*, *normalized_shape) to the same."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """See Module."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"


class RMSNorm(_Scaled):
    """The last dimensions, of sizes normalized_shape, over the root of their mean square, then scaled. eps: None for the dtype's distance from 1 to
    the next number."""

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.normalized_shape = _sizes(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._norm_put(self.normalized_shape, elementwise_affine, None, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(*, *normalized_shape) to the same."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """See Module."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Scaled):
    """Each of num_groups groups of channels of each sample brought to mean 0 and variance 1, then scaled and shifted by channel. ValueError where
    groups do not divide channels."""

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None, dtype: Any = None, *,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._norm_put(num_channels, affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """(N, num_channels, *) to the same."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """See Module."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class _AmongNeighbours(Module):
    """Each channel over a power of k plus alpha times the mean square of the `size` channels around it."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def extra_repr(self) -> str:
        """See Module."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LocalResponseNorm(_AmongNeighbours):
    """See `F.local_response_norm` (Krizhevsky et al. 2012)."""

    __constants__ = ["size", "alpha", "beta", "k"]

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, *) to the same."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)


class CrossMapLRN2d(_AmongNeighbours):
    """LocalResponseNorm of (N, C, H, W) as the Torch of Lua has it: with as many channels on both sides, of an even size one fewer than are counted,
    and with the first channel still where it has left the window."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, H, W) to the same. ValueError for another number of dimensions."""
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        each_side = (self.size - 1) // 2
        around = (2 * each_side + 1, 1, 1)
        square = input * input
        means = F.avg_pool3d(square.unsqueeze(1), around, 1, (each_side, 0, 0), divisor_override=self.size).squeeze(1)
        means = cat((means[:, : each_side + 1], means[:, each_side + 1 :] + square[:, :1] / self.size), 1)
        return input * (means * self.alpha + self.k) ** -self.beta
