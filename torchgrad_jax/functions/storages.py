"""The memory of a tensor as an object, to be asked and compared. It is written through tensors alone."""

from __future__ import annotations

from typing import Any, Never

import numpy as np

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.memory.storage import Storage
from torchgrad_jax.runtime.user_code import warn_user

_DEPRECATED = (
    "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class. This should only matter to you "
    "if you are using storages directly.  To access UntypedStorage directly, use tensor.untyped_storage() instead of tensor.storage()"
)
_warned = False


def _no_writing() -> Never:
    raise RuntimeError("storages cannot be written to or resized, as XLA's arrays cannot: write through a tensor of the storage")


class _StorageBase:
    """What both kinds of storage tell. Equal: of the same memory."""

    __slots__ = ("_shared",)

    def __init__(self, shared: Storage) -> None:
        self._shared = shared

    @property
    def device(self) -> Any:
        """Where the memory is."""
        return self._shared.value.aval.device

    @property
    def is_cuda(self) -> bool:
        """Whether that is a GPU."""
        return self.device.type == "cuda"

    def nbytes(self) -> int:
        """Its size in bytes."""
        aval = self._shared.value.aval
        return aval.size * aval.dtype.itemsize

    def data_ptr(self) -> int:
        """The `data_ptr()` of a tensor that begins with the memory."""
        return self._shared.address

    def _bytes(self) -> np.ndarray:
        return np.ascontiguousarray(self._shared.value.concrete()).reshape(-1)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _StorageBase) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return hash((type(self), self.data_ptr()))

    def __setitem__(self, index: Any, value: Any) -> None:
        _no_writing()

    def resizable(self) -> bool:
        """False: see `resize_`."""
        return False

    def resize_(self, size: int) -> None:
        """RuntimeError: arrays do not grow."""
        _no_writing()

    def fill_(self, value: Any) -> None:
        """RuntimeError: arrays cannot be written to. Write through a tensor."""
        _no_writing()

    def copy_(self, source: Any, non_blocking: bool = False) -> None:
        """RuntimeError: arrays cannot be written to. Write through a tensor."""
        _no_writing()


@public("torch")
class UntypedStorage(_StorageBase):
    """Memory as bytes."""

    __slots__ = ()

    def __len__(self) -> int:
        """Its size in bytes."""
        return self.nbytes()

    size = __len__

    def tolist(self) -> list[int]:
        """The bytes."""
        return self._bytes().view(np.uint8).tolist()

    def __getitem__(self, index: Any) -> Any:
        return self.tolist()[index]

    def __repr__(self) -> str:
        return "\n".join([*(f" {b}" for b in self.tolist()), f"[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"])


@public("torch")
class TypedStorage(_StorageBase):
    """Memory as elements of one dtype."""

    __slots__ = ("dtype",)

    def __init__(self, shared: Storage, dtype: dtypes.dtype) -> None:
        super().__init__(shared)
        self.dtype = dtype

    def element_size(self) -> int:
        """The size of an element in bytes."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        """How many elements it has."""
        return self.nbytes() // self.element_size()

    size = __len__

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage(self._shared)

    def tolist(self) -> list[Any]:
        """The elements."""
        return self._bytes().view(self.dtype.np).tolist()

    def __getitem__(self, index: int) -> Any:
        return self.tolist()[index]

    def __repr__(self) -> str:
        told = f"[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"
        return "\n".join([*(f" {x}" for x in self.tolist()), told])


@public("torch.Tensor")
def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that the tensor shares with its views, as bytes."""
    return UntypedStorage(self._shared())


@public("torch.Tensor")
def storage(self: Tensor) -> TypedStorage:
    """The memory that the tensor shares with its views, as elements of its dtype. Warns, once in a process: PyTorch has deprecated it."""
    global _warned
    if not _warned:
        _warned = True
        warn_user(_DEPRECATED)
    return TypedStorage(self._shared(), self.dtype)
