"""Fold and Unfold."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module

__all__ = ["Fold", "Unfold"]


class _Blocks(Module):
    """What slides: blocks of kernel_size, stride apart."""

    def __init__(self, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def extra_repr(self) -> str:
        """See Module."""
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(_Blocks):
    """Columns added up as an image: see `F.fold`."""

    __constants__ = ["output_size", "kernel_size", "dilation", "padding", "stride"]

    def __init__(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        Module.__init__(self)
        self.output_size, self.kernel_size, self.dilation, self.padding, self.stride = output_size, kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        """(N, C * prod(kernel_size), L) to (N, C, *output_size)."""
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """See Module."""
        return f"output_size={self.output_size}, {super().extra_repr()}"


class Unfold(_Blocks):
    """The sliding blocks of an image as columns: see `F.unfold`."""

    __constants__ = ["kernel_size", "dilation", "padding", "stride"]

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__(kernel_size, dilation, padding, stride)

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, H, W) to (N, C * prod(kernel_size), L)."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
