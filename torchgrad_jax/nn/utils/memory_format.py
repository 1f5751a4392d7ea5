"""`torch.nn.utils.memory_format`: the order in memory of the weights of convolutions."""

from __future__ import annotations

from typing import Any, TypeVar

from torchgrad_jax.memory.formats import memory_format as format_type
from torchgrad_jax.nn.modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from torchgrad_jax.nn.modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

_M = TypeVar("_M", bound=Module)


def convert_conv2d_weight_memory_format(module: _M, memory_format: format_type) -> _M:
    """Bring the weights of a module's two-dimensional convolutions, transposed ones too, into a memory format."""
    return _converted(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: _M, memory_format: format_type) -> _M:
    """Bring the weights of a module's three-dimensional convolutions, transposed ones too, into a memory format."""
    return _converted(module, memory_format, (Conv3d, ConvTranspose3d))


def _converted(module: _M, wanted: format_type, layers: tuple[type[Module], ...]) -> _M:
    for found in module.modules():
        if isinstance(found, layers):
            weight: Any = found.weight
            weight.data = weight.detach().clone().contiguous(memory_format=wanted)
    return module
