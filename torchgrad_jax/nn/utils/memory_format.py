"""`torch.nn.utils.memory_format`: the order in memory of the weights of convolutions."""

from __future__ import annotations

from typing import Any, TypeVar

from torchgrad_jax.memory.formats import memory_format as format_type
from torchgrad_jax.nn.modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

_M = TypeVar("_M", bound=Module)


def convert_conv2d_weight_memory_format(module: _M, memory_format: format_type) -> _M:
    """Bring the weights of a module's two-dimensional convolutions, transposed ones too, into a memory format."""
    return _converted(module, memory_format, "Conv2d", "ConvTranspose2d")


def convert_conv3d_weight_memory_format(module: _M, memory_format: format_type) -> _M:
    """Bring the weights of a module's three-dimensional convolutions, transposed ones too, into a memory format."""
    return _converted(module, memory_format, "Conv3d", "ConvTranspose3d")


def is_layer(module: Module, *names: str) -> bool:
    """Whether a module is of one of our own classes of these names, or of a subclass."""
    return any(kind.__name__ in names and kind.__module__.startswith("torchgrad_jax.nn.") for kind in type(module).__mro__)


def _converted(module: _M, wanted: format_type, *layers: str) -> _M:
    for found in module.modules():
        if is_layer(found, *layers):
            weight: Any = found.weight
            weight.data = weight.detach().clone().contiguous(memory_format=wanted)
    return module
