"""DLPack: tensors given to and taken from other array libraries. Both ways copy, since arrays here never change and theirs may; but JAX's do not."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import jax
import numpy as np

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.conversion import to
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.runtime._jax_compat import x64
from torchgrad_jax.runtime.device import for_user
from torchgrad_jax.runtime.value import Value, constant, is_tracer


class DLDeviceType(IntEnum):
    """Kinds of devices by DLPack's numbers."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLROCM = 10


_KINDS = {"cpu": DLDeviceType.kDLCPU, "cuda": DLDeviceType.kDLCUDA}


@public("torch.Tensor")
def __dlpack__(self: Tensor, *, stream: Any = -1, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> Any:
    """A capsule with a copy of the content. BufferError for a tensor that requires grad, or that is told to be conjugate."""
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set")
    if self.device.type == "cpu" and stream not in (None, -1):
        raise AssertionError("stream should be None on cpu.")
    if copy is False:
        raise BufferError("torchgrad_jax cannot export a tensor without copying it: its arrays never change")
    content = self._concrete()
    if self.device.type != "cpu" or self.dtype is dtypes.bfloat16:
        return _copied(content).__dlpack__()
    return np.array(content).__dlpack__()


@x64
def _copied(array: Any) -> jax.Array:
    return jax.numpy.array(for_user(array), copy=True)


@x64
def _on_its_device(array: Any) -> jax.Array:
    return jax.numpy.array(array, copy=True)


@x64  # without it JAX makes float32 of float64 and says nothing
def _by_jax(ext_tensor: Any) -> jax.Array:
    return jax.numpy.array(jax.dlpack.from_dlpack(ext_tensor), copy=True)


@public("torch.Tensor")
def __dlpack_device__(self: Tensor) -> tuple[DLDeviceType, int]:
    """The kind of the device and its number."""
    if self.is_meta:
        raise ValueError("Unknown device type meta for Dlpack")
    return _KINDS[self.device.type], self.device.index or 0


def value_of(array: jax.Array) -> Value:
    """An array of the user's, or a tracer, as a Value. TypeError for a dtype that no tensor has.

    On the CPU it shares its memory: XLA does not give memory away that somebody else refers to. On an accelerator the user's `donate_argnums` would
    take ours with it: it is copied there.
    """
    if not dtypes.is_known(array.dtype):
        raise TypeError(f"a Tensor cannot have the dtype {array.dtype} of a JAX array")
    if not is_tracer(array) and next(iter(array.devices())).platform != "cpu":
        array = _on_its_device(array)
    return constant(array)


INVALID = (
    "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might have already constructed a tensor "
    "from it once."
)


class _Capsule:
    """What a capsule is in the protocol of today: an object that gives it."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLDeviceType.kDLCPU, 0


@public("torch")
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor with a copy of what another library's array, or a capsule, holds, on the device where that is. Tensors of our own share their memory,
    and JAX's arrays are not copied on the CPU. BufferError for ``copy=False`` elsewhere, RuntimeError for what is none of these."""
    if isinstance(ext_tensor, Tensor):
        __dlpack_device__(ext_tensor)
        if ext_tensor.is_conj():
            raise BufferError("Can't export tensors with the conjugate bit set")
        made = ext_tensor.detach()
        made = made.clone() if copy else made
    elif isinstance(ext_tensor, jax.Array):
        made = created(value_of(ext_tensor))
    elif copy is False:
        raise BufferError("torchgrad_jax cannot import an array without copying it: its arrays never change")
    else:
        made = created(_imported(_Capsule(ext_tensor) if type(ext_tensor).__name__ == "PyCapsule" else ext_tensor))
    return made if device is None else to(made, device)


def _imported(ext_tensor: Any) -> Value:
    if not hasattr(ext_tensor, "__dlpack_device__"):
        raise RuntimeError(INVALID)
    kind, _ = ext_tensor.__dlpack_device__()
    if int(kind) != DLDeviceType.kDLCPU:
        return constant(_by_jax(ext_tensor))
    try:
        array = np.from_dlpack(ext_tensor)
    except (BufferError, RuntimeError):  # NumPy knows no bfloat16
        array = np.asarray(_by_jax(ext_tensor))
    return from_data(np.array(array), None, "cpu")


@public("torch")
def to_dlpack(tensor: Tensor) -> Any:
    """A capsule with a copy of the content."""
    return __dlpack__(tensor)
