"""Private helpers of PyTorch's optimizers that those of other packages use."""

from __future__ import annotations

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.dtypes import dtype
from torchgrad_jax.runtime.device import device

Lists = list[list[Tensor | None]]


def _group_tensors_by_device_and_dtype(tensorlistlist: Lists, with_indices: bool = False) -> dict[tuple[device, dtype], tuple[Lists, list[int]]]:
    """Lists of equal lengths, parted by the device and the dtype of what stands in the first of them: to each pair the parts of the lists and, if
    asked for, the places where they stood. RuntimeError where the first has a None or lengths differ."""
    if not tensorlistlist:
        raise RuntimeError("Expected !nested_tensorlist.empty() to be true, but got false.")
    first = tensorlistlist[0]
    if not first:
        raise RuntimeError("Expected !nested_tensorlist[0].empty() to be true, but got false.")
    if any(len(other) not in (0, len(first)) for other in tensorlistlist):
        raise RuntimeError("Expected all lists of tensors to have as many as the first, or none.")
    groups: dict[tuple[device, dtype], tuple[Lists, list[int]]] = {}
    for place, tensor in enumerate(first):
        if tensor is None:
            raise RuntimeError(f"Tensors of the first list of nested Tensor lists are supposed to be defined but the {place}-th Tensor is not.")
        parts, places = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], []))
        for part, whole in zip(parts, tensorlistlist, strict=True):
            part += whole[place : place + 1]
        if with_indices:
            places.append(place)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Types of devices for which optimizers take `foreach=True` by default."""
    return ["cuda", "xpu", "mtia"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Types of devices that optimizers with `fused=True` take."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia"]


def _device_has_foreach_support(device: device) -> bool:
    """Whether `torch._foreach_` functions take tensors of this device."""
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors: list[Tensor | None], device: device) -> bool:
    """Whether `torch._foreach_` functions take these tensors, which are of this device."""
    return _device_has_foreach_support(device) and all(t is None or type(t) is Tensor for t in tensors)
