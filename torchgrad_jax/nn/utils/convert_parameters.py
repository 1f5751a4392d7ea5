"""`torch.nn.utils.convert_parameters`: parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.shaping import cat

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _one_device(p: Tensor, device: Any) -> Any:
    if device is not None and p.device != device:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
    return p.device


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements, one tensor after the other. TypeError where they are on several devices, ValueError for no tensors."""
    device, parts = None, []
    for p in parameters:
        device = _one_device(p, device)
        parts.append(p.reshape(-1))
    return cat(parts)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Let the tensors have the elements of a vector: their memory is a part of its. TypeError where that is no tensor, and where they are on several
    devices."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    device, begin = None, 0
    for p in parameters:
        device = _one_device(p, device)
        p.data = vec[begin : begin + p.numel()].view_as(p)
        begin += p.numel()
