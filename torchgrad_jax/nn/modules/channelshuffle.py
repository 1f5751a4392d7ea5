"""ChannelShuffle."""

from __future__ import annotations

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """The channels taken in turn from each of the groups: see `F.channel_shuffle`."""

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, *) to the same."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """See Module."""
        return f"groups={self.groups}"
