"""The memory of a tensor as an object: bytes (`UntypedStorage`), or elements of one dtype (`TypedStorage`)."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from typing import Any, Never, Self

import numpy as np

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.level import stands_for_batch
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.memory.storage import Storage
from torchgrad_jax.runtime.device import CPU, META, device, settled
from torchgrad_jax.runtime.pickles import in_pickles
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_once
from torchgrad_jax.runtime.value import aval_of, constant, moved

_DEPRECATED = (
    "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class. This should only matter to you "
    "if you are using storages directly.  To access UntypedStorage directly, use tensor.untyped_storage() instead of tensor.storage()"
)


class Memory:
    """What storage objects of one memory have in common. Until a tensor is made on it, or somebody compares it, it is a flat array alone, of which
    the first tensor may choose dtype and shape: what comes from a file is then no view."""

    __slots__ = ("_storage", "array", "device")
    array: Any

    def __init__(self, storage: Storage | None, array: Any = None, where: device = CPU) -> None:
        self._storage, self.array, self.device = storage, array, where

    @property
    def taken(self) -> bool:
        """Whether dtype and shape are settled."""
        return self._storage is not None

    @property
    def storage(self) -> Storage:
        """What tensors share."""
        return self._storage or self.take(self.array.dtype, self.array.shape)._shared()

    def take(self, dtype: np.dtype, shape: tuple[int, ...]) -> Tensor:
        """Settle dtype and shape, which all of the array must fit: a tensor that is all of it."""
        array = self.array.view(dtype).reshape(shape)
        made = created(constant(array, aval_of(shape, dtype, self.device)))
        self._storage, self.array = made._shared(), None
        return made

    def aval(self) -> tuple[int, device]:
        """Bytes and device."""
        if self._storage is None:
            return self.array.nbytes, self.device
        aval = self._storage.value.aval
        return aval.nbytes, aval.device

    def bytes(self) -> np.ndarray:
        """The content, flat. Whoever asks must not write to it."""
        found = self.array if self._storage is None else np.ascontiguousarray(self._storage.value.concrete())
        return found.reshape(-1).view(np.uint8)

    def write(self, content: np.ndarray) -> None:
        """Replace all bytes."""
        old = self.storage.value.aval
        self.storage.write(constant(content.view(old.dtype).reshape(old.shape), old))


class _StorageBase:
    """What both kinds of storage tell. Equal: of the same memory."""

    __slots__ = ("_memory",)
    dtype: dtypes.dtype
    is_sparse = is_sparse_csr = is_hpu = False
    # The file that shared memory would lie in.
    filename = None

    @classmethod
    def _on(cls, memory: Memory, dtype: dtypes.dtype | None = None) -> Any:
        """The storage object of a memory."""
        made = object.__new__(cls)
        made._memory = memory
        if dtype is not None:
            setattr(made, "dtype", dtype)  # noqa: B010 - the other kind has it of its class
        return made

    @property
    def _shared(self) -> Storage:
        return self._memory.storage

    @property
    def device(self) -> device:
        """Where the memory is."""
        return self._memory.aval()[1]

    @property
    def is_cuda(self) -> bool:
        """Whether that is a GPU."""
        return self.device.type == "cuda"

    def get_device(self) -> int:
        """The number of the device; -1 for the host."""
        return -1 if self.device.index is None else self.device.index

    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._memory.aval()[0]

    def __sizeof__(self) -> int:
        return super().__sizeof__() + self.nbytes()

    def element_size(self) -> int:
        """The size of an element in bytes."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        """How many elements it has."""
        return self.nbytes() // self.element_size()

    size = __len__

    def data_ptr(self) -> int:
        """The `data_ptr()` of a tensor that begins with the memory."""
        return 0 if self.device is META else self._shared.address

    def _elements(self) -> np.ndarray:
        return self._memory.bytes().view(self.dtype.np)

    def tolist(self) -> list[Any]:
        """The elements."""
        return self._elements().tolist()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _StorageBase) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return hash((type(self), self.data_ptr()))

    # ------------------------------------------------------------------ writing

    def _at(self, index: Any) -> Any:
        n = len(self)
        if isinstance(index, slice):
            return index
        if not isinstance(index, (int, np.integer)):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        if not -n <= index < n:
            raise IndexError(f"index {index} out of range for storage of size {n}")
        return int(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Change elements. A write to the memory, which every tensor on it shows."""
        content = self._memory.bytes().copy()
        with np.errstate(over="ignore"):
            content.view(self.dtype.np)[self._at(index)] = value
        self._memory.write(content)

    def fill_(self, value: Any) -> Self:
        """Set all elements."""
        self[:] = value
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> Self:
        """Set all elements to those of another storage. RuntimeError where it has another number of bytes, or of elements."""
        if len(source) != len(self):
            raise RuntimeError("size does not match")
        self[:] = source._elements()
        return self

    def resizable(self) -> bool:
        """False: see `resize_`."""
        return False

    def resize_(self, size: int) -> Never:
        """RuntimeError: arrays do not grow."""
        raise RuntimeError("storages cannot be resized, as XLA's arrays cannot: make a tensor of the size wanted")

    # ------------------------------------------------------------------ copies

    def clone(self) -> Self:
        """The same elements in memory of their own."""
        return self._on(_copied(self._memory, self.device), self.dtype)

    __copy__ = clone

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if id(self) not in memo:
            memo[id(self)] = self._on(Memory(storage_copy(self._shared, memo)), self.dtype)  # type: ignore[call-overload] - typeshed's memo
        return memo[id(self)]

    def to(self, *, device: Any, non_blocking: bool = False) -> Self:
        """The storage on a device: on the same memory if it is there."""
        where = settled(as_device(device))
        return self._on(self._memory if where == self.device else _copied(self._memory, where), self.dtype)

    def cpu(self) -> Self:
        """The storage on the host."""
        return self.to(device=CPU)

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Self:
        """The storage on a GPU. An error where JAX has none."""
        return self.to(device="cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    def is_shared(self) -> bool:
        """Whether other processes see writes: True on a GPU, whose memory PyTorch calls so, else False."""
        return self.is_cuda

    def is_pinned(self, device: Any = None) -> bool:
        """False, for every `device`: there is no pinned memory here."""
        return False

    def share_memory_(self) -> Never:
        """RuntimeError: what one process writes, others would not see."""
        raise RuntimeError(NOT_SHARED)

    def __reduce__(self) -> Any:
        return _restored, (np.asarray(self._memory.bytes()), str(self.device), self.dtype if isinstance(self, TypedStorage) else None)


NOT_SHARED = (
    "torchgrad_jax cannot put tensors where other processes see what is written to them, as XLA's arrays cannot be written to. Send tensors to other "
    "processes by queues, pipes or files instead, which copy them."
)


def as_device(where: Any) -> device:
    """`where` as a device."""
    return where if isinstance(where, device) else device(where)


def _copied(memory: Memory, where: device) -> Memory:
    if where is META and memory.taken:
        return Memory(created(moved(memory.storage.value, where))._shared())
    if not memory.taken:
        return Memory(None, memory.array, where)  # nobody writes into arrays
    content = memory.storage.value.concrete()
    return Memory(None, np.array(content).reshape(-1), where)


def storage_copy(storage: Storage, memo: dict[Any, Any]) -> Storage:
    """The one copy of this memory that `copy.deepcopy` makes."""
    key = ("memory", storage.address)
    made = memo.get(key)
    if made is None:
        made = memo[key] = written_once(created(per_thread.recorder.alias(storage.value))._shared())
    return made


def written_once(storage: Storage) -> Storage:
    """PyTorch makes a copy by putting memory into an empty tensor, which counts as a write."""
    storage.counter.version = storage.value.version = 1
    return storage


@in_pickles("_rebuild_storage")
def _restored(content: np.ndarray, where: str, dtype: dtypes.dtype | None) -> Any:
    memory = Memory(None, content, settled(device(where)))
    return UntypedStorage._on(memory) if dtype is None else TypedStorage._on(memory, dtype)


# ---------------------------------------------------------------------- the two kinds


@public("torch")
class StorageBase(_StorageBase):
    """What `UntypedStorage` is, for `isinstance`. RuntimeError where it is made itself."""

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Cannot directly construct StorageBase; subclass it and then construct that")


@public("torch")
class UntypedStorage(StorageBase):
    """``UntypedStorage(size)``, ``UntypedStorage(numbers)``: memory as bytes. RuntimeError, TypeError for what is neither."""

    __slots__ = ()
    dtype = dtypes.uint8  # type: ignore[misc] - an attribute of the other kind's instances

    def __new__(cls, *args: Any, device: Any = "cpu") -> Self:
        return cls._on(Memory(None, _bytes_of(*args), settled(as_device(device))))

    @classmethod
    def _on(cls, memory: Memory, dtype: dtypes.dtype | None = None) -> Any:
        return super()._on(memory)

    @classmethod
    def from_buffer(cls, buffer: Any, *, dtype: Any = dtypes.uint8, byte_order: str = "native", count: int = -1, offset: int = 0) -> Self:
        """A copy of a part of a buffer's bytes: `count` elements of `dtype` (all if it is -1), from the byte `offset` on."""
        content = np.frombuffer(buffer, dtype.np, count, offset)
        swapped = byte_order == "big" if np.little_endian else byte_order == "little"
        return cls._on(Memory(None, (content.byteswap() if swapped else content.copy()).view(np.uint8)))

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> Self:
        """The first bytes of a file, mapped into memory. RuntimeError for `shared`, as in `torch.from_file`."""
        return cls._on(mapped_file(filename, shared, nbytes))

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def type(self) -> str:
        """The name of the class."""
        return "torch.storage.UntypedStorage" if not self.is_cuda else "torch.cuda.UntypedStorage"

    def __getitem__(self, index: Any) -> Any:
        at = self._at(index)
        return self._on(Memory(None, self._elements()[at].copy(), CPU)) if isinstance(at, slice) else self._elements()[at].item()

    def __repr__(self) -> str:
        return _shown(self, f"[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]")


def _shown(storage: _StorageBase, told: str) -> str:
    return "\n".join([*(f" {x}" for x in storage.tolist() or [""]), told])


def _bytes_of(*args: Any) -> np.ndarray:
    if not args:
        return np.zeros(0, np.uint8)
    data = args[0]
    if isinstance(data, (int, np.integer)) and not isinstance(data, bool):
        return np.zeros(int(data), np.uint8)
    if not isinstance(data, Sequence):
        raise TypeError(f"torch.UntypedStorage(): Expected a sequence type, but got {type(data).__name__}")
    for item in data:
        if not isinstance(item, (int, np.integer)):
            raise RuntimeError(
                f"torch.UntypedStorage(): tried to construct a storage from a sequence ({type(data).__name__}), but one of the items was of type "
                f"{type(item).__name__} instead of int"
            )
    return np.array(list(data), np.int64).astype(np.uint8)


@public("torch")
class TypedStorage(_StorageBase):
    """``TypedStorage(size)``, ``TypedStorage(elements)`` or ``TypedStorage(wrap_storage=untyped)``: memory as elements of one `dtype`, by default the
    default dtype. TypeError for what is neither size nor elements."""

    __slots__ = ("dtype",)

    def __new__(cls, *args: Any, wrap_storage: Any = None, dtype: Any = None, device: Any = "cpu", _internal: bool = False) -> Any:
        if not _internal:
            warn_once(_DEPRECATED)
        kind = dtype or dtypes.get_default_dtype()
        if wrap_storage is not None:
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(_NO_STORAGE.format(type(wrap_storage)))
            return TypedStorage._on(wrap_storage._memory, kind)
        return TypedStorage._on(Memory(None, _elements_of(kind, args), settled(as_device(device))), kind)

    @property
    def _dtype(self) -> dtypes.dtype:
        return self.dtype

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return UntypedStorage._on(self._memory)

    @property
    def _untyped_storage(self) -> UntypedStorage:
        return self.untyped()

    def pickle_storage_type(self) -> str:
        """The name of the old class of this dtype. KeyError where there is none."""
        return f"{_OLD_NAMES[self.dtype]}Storage"

    def type(self) -> str:
        """The dotted name of the old class of this dtype."""
        return f"torch{'.cuda' if self.is_cuda else ''}.{self.pickle_storage_type()}"

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._elements()[self._at(index)].item()

    def __repr__(self) -> str:
        return _shown(self, f"[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]")


_NO_STORAGE = (
    "TypedStorage.__init__ received an invalid combination of arguments. Expected one of:\n * (*, torch.device device, torch.dtype dtype)\n"
    " * (int size, *, torch.device device, torch.dtype dtype)\n * (Sequence data, *, torch.device device, torch.dtype dtype)\n"
    " * (*, UntypedStorage wrap_storage, torch.dtype dtype)\nArgument 'wrap_storage' must be UntypedStorage, but got {}"
)


def _elements_of(dtype: dtypes.dtype, args: tuple[Any, ...]) -> np.ndarray:
    data = args[0] if args else 0
    if isinstance(data, (int, np.integer)) and not isinstance(data, bool):
        return np.zeros(int(data), dtype.np)
    if isinstance(data, (str, bytes)) or not (isinstance(data, Sequence) or hasattr(data, "__array__")):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'" if isinstance(data, (str, bytes)) else _NO_ELEMENTS.format(type(data)))
    return np.array(data).astype(dtype.np).reshape(-1)


_NO_ELEMENTS = "TypedStorage.__new__ takes no argument, the number of elements or a sequence of them: Argument type not recognized: {}"


# ---------------------------------------------------------------------- the old classes, one for each dtype

_OLD = ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double", "ComplexFloat", "ComplexDouble")
_OLD_NAMES: dict[dtypes.dtype, str] = {d: d.title for d in dtypes.ALL if d.title in _OLD}


class _OldStorage(type):
    """The class of `FloatStorage` and the like: storages of their dtype on the host are their instances."""

    dtype: dtypes.dtype

    def __repr__(cls) -> str:
        return f"<class 'torch.{cls.__name__}'>"

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype and not instance.is_cuda

    def __call__(cls, *args: Any, wrap_storage: Any = None) -> Any:
        """A TypedStorage."""
        if args and isinstance(args[0], (float, bool)):
            raise TypeError(
                f"{cls}.__new__ received an invalid combination of arguments. Expected one of:\n * no arguments\n * (int size)\n * (Sequence data)\n"
                f" * (*, UntypedStorage wrap_storage)\nArgument type not recognized: {type(args[0])}"
            )
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype)

    def from_buffer(cls, buffer: Any, *, byte_order: str = "native", count: int = -1, offset: int = 0) -> Any:
        """A copy of a buffer's elements."""
        read = UntypedStorage.from_buffer(buffer, dtype=cls.dtype, byte_order=byte_order, count=count, offset=offset)
        return TypedStorage._on(read._memory, cls.dtype)

    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> Any:
        """The first elements of a file, mapped into memory."""
        return TypedStorage._on(mapped_file(filename, shared, size * cls.dtype.itemsize), cls.dtype)


def _old_class(dtype: dtypes.dtype, name: str) -> _OldStorage:
    said = f"Storages of {dtype.name}: as a constructor, and for `isinstance`."
    return public(f"torch.{name}Storage")(_OldStorage(f"{name}Storage", (), {"dtype": dtype, "__module__": "torchgrad_jax", "__doc__": said}))


old_classes: dict[dtypes.dtype, _OldStorage] = {dtype: _old_class(dtype, name) for dtype, name in _OLD_NAMES.items()}
public("torch.Storage")(old_classes[dtypes.float32])


def _conversion(dtype: dtypes.dtype, name: str) -> Any:
    def convert(self: Any) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return TypedStorage._on(Memory(None, self._elements().astype(dtype.np), self.device), dtype)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"The elements as {dtype.name}, in memory of their own."
    return convert


for _dtype, _name in _OLD_NAMES.items():
    _method = {"ComplexFloat": "complex_float", "ComplexDouble": "complex_double"}.get(_name, _name.lower())
    setattr(_StorageBase, _method, _conversion(_dtype, _method))
for _kind in (UntypedStorage, TypedStorage):
    _kind.__module__ = "torchgrad_jax.storage"  # where pickles look for them


# ---------------------------------------------------------------------- of tensors, and of files


@public("torch")
def is_storage(obj: Any, /) -> bool:
    """Whether `obj` is a storage."""
    return isinstance(obj, _StorageBase)


@public("torch.Tensor")
def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory that the tensor shares with its views, as bytes. NotImplementedError for what stands for a batch."""
    _refuse_batch(self)
    return UntypedStorage._on(Memory(self._shared()))


def _refuse_batch(t: Tensor) -> None:
    if stands_for_batch(t):
        raise NotImplementedError("Cannot access storage of BatchedTensorImpl")


@public("torch.Tensor")
def storage(self: Tensor) -> TypedStorage:
    """The memory that the tensor shares with its views, as elements of its dtype. Warns, once in a process: PyTorch has deprecated it."""
    warn_once(_DEPRECATED)
    return typed_storage(self)


@public("torch.Tensor._typed_storage")
def typed_storage(self: Tensor) -> TypedStorage:
    """`storage` without the warning."""
    _refuse_batch(self)
    return TypedStorage._on(Memory(self._shared()), self.dtype)


@public("torch.Tensor")
def storage_type(self: Tensor) -> Any:
    """The old class of storages of this dtype; None where there is none."""
    return old_classes.get(self.dtype)


def mapped_file(filename: str, shared: bool | None, nbytes: int) -> Memory:
    """The first bytes of a file, mapped into memory, where they are read when they are needed. RuntimeError with PyTorch's text where that cannot be
    done, or where writes are to reach the file."""
    if shared:
        raise RuntimeError(
            "torchgrad_jax cannot map a file with shared=True: XLA's arrays cannot be written to, so writes would not reach the file. Use "
            "shared=False, and numpy.memmap to write."
        )
    try:
        with open(filename, "rb") as file:
            have = os.fstat(file.fileno()).st_size
            if nbytes < 0:
                raise RuntimeError(f"unable to mmap {nbytes} bytes from file <{filename}>: Cannot allocate memory (12)")
            if have < nbytes:
                raise RuntimeError(f"file <{filename}> size <{have}> is smaller than the required mapping size <{nbytes}>")
            mapped: Any = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_COPY) if nbytes else b""
    except OSError as error:
        raise RuntimeError(f"unable to open file <{filename}> in read-only mode: {error.strerror} ({error.errno})") from None
    return Memory(None, np.frombuffer(mapped, np.uint8))
