"""`torch.types`: names for annotations."""

import builtins
import os
from typing import IO

from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.functions.storages import TypedStorage, UntypedStorage
from torchgrad_jax.runtime.device import device as _device

__all__ = ["Device", "FileLike", "Number", "Size", "Storage", "Tensor"]

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_size = Size | list[builtins.int] | tuple[builtins.int, ...]
_TensorOrTensors = Tensor | tuple[Tensor, ...] | list[Tensor]
Number = builtins.int | builtins.float | builtins.bool
Device = _device | builtins.str | builtins.int | None
Storage = UntypedStorage | TypedStorage
FileLike = builtins.str | os.PathLike[builtins.str] | IO[builtins.bytes]
