"""Arrays of other libraries as tensors: NumPy's, JAX's, buffers.

What may be written to by its owner is copied. JAX's arrays never change, so a tensor takes them as they are.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from torchgrad_jax.calling.factory_options import check_memory
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.conversion import to
from torchgrad_jax.functions.creation import as_device, checked_dtype, from_data, of_numbers, requiring
from torchgrad_jax.functions.dlpack import from_dlpack, value_of
from torchgrad_jax.functions.storages import UntypedStorage, mapped_file
from torchgrad_jax.runtime.user_code import warn_once


@public("torch")
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor: itself if it is one of that dtype and device already. An array of JAX's stays on its device, and is not copied."""
    if (made := of_numbers(data, dtype, device)) is not None:
        return made
    check_memory("as_tensor", {"device": device})
    if isinstance(data, jax.Array):
        data = created(value_of(data))
    if isinstance(data, Tensor):
        return to(data, device or data._aval.device, dtype or dtypes.of(data._aval.dtype))
    return created(from_data(data, dtype, device))


@public("torch")
def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool | None = None) -> Tensor:
    """`obj` as a tensor: a tensor, an array of NumPy's or JAX's, a DLPack capsule, a buffer, a number, or nested sequences.

    A tensor and an array of JAX's are not copied unless their dtype or device is to be another, or `copy` says so; NumPy arrays and buffers always
    are. A buffer is read as elements of `dtype`, by default the default dtype. requires_grad: None leaves it as it is with `obj`.
    ValueError for ``copy=False`` where a copy is needed. RuntimeError where integers are to require gradients, or `obj` is nothing of these.
    """
    kind, where = None if dtype is None else checked_dtype("asarray", dtype), None if device is None else as_device(device)
    if isinstance(obj, jax.Array):
        obj = created(value_of(obj))
    elif type(obj).__name__ == "PyCapsule":
        obj = from_dlpack(obj)
    if isinstance(obj, Tensor):
        return _of_tensor(obj, kind, where, copy, requires_grad)
    if copy is False:
        raise _no_alias(obj)
    if not isinstance(obj, (np.ndarray, np.generic, str, bool, int, float, complex, list, tuple)) and (buffer := _buffer_of(obj)) is not None:
        obj, kind = _elements(buffer, (kind or dtypes.get_default_dtype()).np), None
    return requiring(created(from_data(obj, kind, where)), bool(requires_grad))


def _of_tensor(t: Tensor, kind: dtypes.dtype | None, where: Any, copy: bool | None, requires_grad: bool | None) -> Tensor:
    own = dtypes.of(t._aval.dtype)
    if copy is False and kind not in (None, own):
        raise ValueError(f"can't alias tensor with dtype '{own.title}' into dtype '{kind.title}'.")
    if copy is False and where not in (None, t._aval.device):
        raise ValueError(f"can't alias tensor from device '{t._aval.device}' to '{where}'.")
    made = to(t, where or t._aval.device, kind or own)
    if copy and made is t:
        made = t.clone()
    if requires_grad is None and t.requires_grad:
        warn_once(
            "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad instead of False. Pass requires_grad=False explicitly to get "
            "the old behavior and silence this warning."
        )
    if requires_grad is False and made.requires_grad:
        return made.detach()
    return requiring(made, True) if requires_grad and not made.requires_grad else made


@public("torch")
def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A tensor (n,) of `count` elements (all where it is negative) of a buffer from the byte `offset` on, copied: later writes to either do not show
    in the other. ValueError for what is no buffer, and where there are no such elements."""
    kind = checked_dtype("frombuffer", dtype)
    content = _buffer_of(buffer)
    if content is None:
        raise ValueError("object does not implement Python buffer protocol.")
    have, width = content.nbytes, kind.itemsize
    if have == 0 or count == 0:
        raise ValueError(f"both buffer length ({have}) and count ({count}) must not be 0")
    if not 0 <= offset < have:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({have} bytes) minus 1")
    if count < 0 and (have - offset) % width:
        raise ValueError(f"buffer length ({have - offset} bytes) after offset ({offset} bytes) must be a multiple of element size ({width})")
    if count > 0 and offset + count * width > have:
        raise ValueError(
            f"requested buffer length ({count} * {width} bytes) after offset ({offset} bytes) must not be greater than actual buffer length "
            f"({have} bytes)"
        )
    array = np.frombuffer(content, kind.np if kind is not dtypes.bool_ else np.uint8, count, offset)
    return requiring(created(from_data(array != 0 if kind is dtypes.bool_ else array.copy(), None, None)), requires_grad)


@public("torch")
def from_file(
    filename: str, shared: bool | None = None, size: int | None = 0, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = False,
) -> Tensor:  # fmt: skip
    """A tensor (size,) of the first elements of a file, which are read when they are needed. RuntimeError where the file has fewer, and for
    ``shared=True``: writes would not reach it."""
    if not isinstance(filename, str):
        raise TypeError(f"from_file(): argument 'filename' (position 1) must be str, not {type(filename).__name__}")
    check_memory("from_file", {"layout": layout, "device": device, "pin_memory": pin_memory})
    kind = dtypes.get_default_dtype() if dtype is None else checked_dtype("from_file", dtype)
    memory = mapped_file(filename, shared, (size or 0) * kind.itemsize)
    memory.device = as_device(device)
    return memory.take(kind.np, (size or 0,))


def _no_alias(obj: Any) -> Exception:
    if isinstance(obj, np.generic):
        return RuntimeError("can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray. ")
    if isinstance(obj, np.ndarray) or _buffer_of(obj) is not None:
        return ValueError("torchgrad_jax cannot take an array without copying it, since its owner may write to it; remove copy=False")
    return ValueError("can't alias arbitrary sequence into a tensor.")


def _buffer_of(obj: Any) -> memoryview | None:
    if isinstance(obj, UntypedStorage):
        return obj._elements().data
    try:
        return memoryview(obj)
    except TypeError:
        return None


def _elements(buffer: memoryview, array_type: np.dtype) -> np.ndarray:
    """A copy of a buffer as elements of a dtype. ValueError where its length does not fit."""
    if buffer.nbytes % array_type.itemsize:
        raise ValueError(f"buffer length ({buffer.nbytes} bytes) after offset (0 bytes) must be a multiple of element size ({array_type.itemsize})")
    return np.frombuffer(buffer.tobytes(), array_type)
