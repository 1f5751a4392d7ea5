"""`torch.save`."""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchgrad_jax.calling.return_types import ReturnType
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.storages import TypedStorage, UntypedStorage, is_storage, old_classes
from torchgrad_jax.memory.formats import memory_format
from torchgrad_jax.runtime.settings import save_settings
from torchgrad_jax.saving import names
from torchgrad_jax.saving.archive import Writer
from torchgrad_jax.saving.locations import location_tag
from torchgrad_jax.saving.options import skipping

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
# What files of the old format say of the machine.
SYSTEM = {"protocol_version": PROTOCOL_VERSION, "little_endian": sys.byteorder == "little", "type_sizes": {"short": 2, "int": 4, "long": 4}}


def save(
    obj: object, f: Any, pickle_module: Any = pickle, pickle_protocol: int = 2, _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:  # fmt: skip
    """Write an object to a file, given by its path or as what has `write` and `flush`, in PyTorch's format: what shares memory shares it in the file.

    pickle_module: what pickles the rest of the object. _use_new_zipfile_serialization: False writes the format from before PyTorch 1.6.
    AttributeError for what cannot be written to, RuntimeError where a file cannot be made, or one memory is seen as of several dtypes.
    """
    is_path = isinstance(f, (str, os.PathLike))
    if not is_path and not hasattr(f, "write"):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")
    if not _use_new_zipfile_serialization and skipping():
        raise RuntimeError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")
    stored = _Stored(numbered=_use_new_zipfile_serialization)
    content = stored.pickled(obj, pickle_module, pickle_protocol)
    write = _as_archive if _use_new_zipfile_serialization else _as_old_file
    if not is_path:
        write(f.write, "archive", content, stored, pickle_module, pickle_protocol, not _disable_byteorder_record)
        f.flush()
        return
    with _opened(os.fspath(f)) as file:
        write(file.write, Path(os.fspath(f)).stem, content, stored, pickle_module, pickle_protocol, not _disable_byteorder_record)


def _opened(path: Any) -> Any:
    try:
        return open(path, "wb")
    except OSError as error:
        parent = os.path.dirname(path)
        if parent and not os.path.isdir(parent):
            raise RuntimeError(f"Parent directory {os.fsdecode(parent)} does not exist.") from None
        raise RuntimeError(f"open file failed with strerror: {error.strerror}") from None


class _Stored:
    """The storages that an object has, by the key that they have in the file. numbered: whether keys are numbers."""

    def __init__(self, numbered: bool) -> None:
        self._numbered = numbered
        self._known: dict[int, tuple[str, Any, str]] = {}
        self.contents: dict[str, Any] = {}

    def _described(self, storage: Any) -> tuple[Any, ...]:
        typed = isinstance(storage, TypedStorage) and storage.dtype in old_classes
        kind = old_classes[storage.dtype] if typed else UntypedStorage
        address = storage.data_ptr()
        if address not in self._known:
            key = str(len(self._known)) if self._numbered else str(address)
            self.contents[key] = storage
            self._known[address] = key, kind, location_tag(storage)
        key, known, location = self._known[address]
        if known is not kind:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types")
        described = ("storage", kind, key, location, len(storage) if typed else storage.nbytes())
        return described if self._numbered else (*described, None)

    def pickled(self, obj: object, pickle_module: Any, protocol: int) -> bytes:
        """The object without contents of storages."""
        globals_written: set[tuple[str, str]] = set()
        described = self._described

        class Pickler(pickle_module.Pickler):
            def persistent_id(self, obj: Any) -> Any:
                return described(obj) if is_storage(obj) else None

            def reducer_override(self, obj: Any) -> Any:
                if isinstance(obj, Tensor):
                    return _named_tensor(obj, protocol)
                if isinstance(obj, ReturnType):  # plain pickles do not name the class, which may not have been made yet where they are read
                    return type(obj), (tuple(obj), {})
                if isinstance(obj, (dtypes.dtype, memory_format)):
                    globals_written.add((obj.__module__, obj.name))
                elif _is_ours(obj):
                    globals_written.add((obj.__module__, obj.__qualname__))
                return getattr(super(), "reducer_override", lambda _: NotImplemented)(obj)

        buffer = io.BytesIO()
        Pickler(buffer, protocol=protocol).dump(obj)
        exact = pickle_module is pickle and 0 < protocol < 4
        return names.renamed(buffer.getvalue(), globals_written if exact else None)


def _is_ours(obj: Any) -> bool:
    module = getattr(obj, "__module__", None)
    return isinstance(module, str) and module.startswith(names.OURS) and hasattr(obj, "__qualname__")


def _named_tensor(t: Tensor, protocol: int) -> Any:
    """How a tensor is pickled, its class by name: plain pickles leave out Tensor, which other processes may have by another one."""
    reduced = t.__reduce_ex__(protocol)
    if isinstance(reduced, tuple) and reduced[0] is names.REBUILD_FROM_TYPE and reduced[1][1] is None:
        make, _, parts, state = reduced[1]
        return names.REBUILD_FROM_TYPE, (make, Tensor, parts, state)
    return reduced


_Write = Callable[[Any], Any]


def _as_archive(write: _Write, folder: str, content: bytes, stored: _Stored, pickle_module: Any, protocol: int, with_byteorder: bool) -> None:
    alignment = save_settings.storage_alignment
    if not (isinstance(alignment, int) and 0 < alignment <= 32768):
        raise ValueError(f"config.save.storage_alignment must be between 1 and 32768, but got {alignment}")
    archive = Writer(write, folder, alignment, save_settings.compute_crc32)
    archive.record("data.pkl", content)
    archive.record(".format_version", b"1")
    archive.record(".storage_alignment", str(alignment).encode())
    if with_byteorder:
        archive.record("byteorder", sys.byteorder.encode())
    for key, storage in stored.contents.items():
        archive.record(f"data/{key}", storage.nbytes() if skipping() else storage._memory.bytes())
    archive.record("version", b"3\n")
    archive.close()


def _as_old_file(write: _Write, folder: str, content: bytes, stored: _Stored, pickle_module: Any, protocol: int, with_byteorder: bool) -> None:
    for part in (MAGIC, PROTOCOL_VERSION, SYSTEM):
        write(pickle_module.dumps(part, protocol=protocol))
    write(content)
    keys = sorted(stored.contents)
    write(pickle_module.dumps(keys, protocol=protocol))
    for key in keys:
        storage = stored.contents[key]
        typed = isinstance(storage, TypedStorage) and storage.dtype in old_classes
        write((len(storage) if typed else storage.nbytes()).to_bytes(8, "little"))
        write(storage._memory.bytes())
