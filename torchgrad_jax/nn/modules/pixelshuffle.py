"""PixelShuffle and PixelUnshuffle."""

from __future__ import annotations

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """Channels moved into space: see `F.pixel_shuffle`."""

    __constants__ = ["upscale_factor"]

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """(*, C * r * r, H, W) to (*, C, H * r, W * r)."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """See Module."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Space moved into channels: see `F.pixel_unshuffle`."""

    __constants__ = ["downscale_factor"]

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """(*, C, H * r, W * r) to (*, C * r * r, H, W)."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """See Module."""
        return f"downscale_factor={self.downscale_factor}"
