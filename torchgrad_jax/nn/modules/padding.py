"""Padding of the last dimensions."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.modules.utils import _ntuple

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d",
    "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    """padding: the amounts before and after each dimension, the last dimension first; a number for all of them."""

    __constants__ = ["padding"]

    _spatial_dims: int
    _pad_mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._spatial_dims)(padding)

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, *) or (C, *) to the same with larger spatial sizes."""
        return F.pad(input, self.padding, self._pad_mode)

    def extra_repr(self) -> str:
        """See Module."""
        return f"{self.padding}"


# ---------------------------------------------------------------------- by a number


class _ConstantPadNd(_Pad):
    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        Module.__init__(self)
        self.value, self.padding = value, _ntuple(2 * self._spatial_dims)(padding)

    def forward(self, input: Tensor) -> Tensor:
        """Any shape to the same with larger last sizes."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """See Module."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Padding of the last dimension by a number."""

    _spatial_dims = 1


class ConstantPad2d(_ConstantPadNd):
    """Padding of the last two dimensions by a number."""

    _spatial_dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Padding of the last three dimensions by a number."""

    _spatial_dims = 3


class ZeroPad1d(ConstantPad1d):
    """Padding of the last dimension by zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """See Module."""
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Padding of the last two dimensions by zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """See Module."""
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Padding of the last three dimensions by zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """See Module."""
        return f"{self.padding}"


# ---------------------------------------------------------------------- by what is there


class _CircularPadNd(_Pad):
    _pad_mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (self._spatial_dims + 1, self._spatial_dims + 2):
            raise ValueError(f"expected {self._spatial_dims + 1}D or {self._spatial_dims + 2}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, *) or (C, *) to the same with larger spatial sizes. ValueError for another number of dimensions."""
        self._check_input_dim(input)
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Padding of the last dimension by its other end."""

    _spatial_dims = 1


class CircularPad2d(_CircularPadNd):
    """Padding of the last two dimensions by their other ends."""

    _spatial_dims = 2


class CircularPad3d(_CircularPadNd):
    """Padding of the last three dimensions by their other ends."""

    _spatial_dims = 3


class _ReflectionPadNd(_Pad):
    _pad_mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Padding of the last dimension by its mirror image."""

    _spatial_dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Padding of the last two dimensions by their mirror image."""

    _spatial_dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Padding of the last three dimensions by their mirror image."""

    _spatial_dims = 3


class _ReplicationPadNd(_Pad):
    _pad_mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Padding of the last dimension by its border."""

    _spatial_dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Padding of the last two dimensions by their border."""

    _spatial_dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Padding of the last three dimensions by their border."""

    _spatial_dims = 3
