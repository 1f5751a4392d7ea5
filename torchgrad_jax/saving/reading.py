"""`torch.load`."""

from __future__ import annotations

import io
import mmap as mapping
import os
import pickle
import pickletools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from torchgrad_jax.functions.storages import Memory, TypedStorage, UntypedStorage, old_classes
from torchgrad_jax.runtime.settings import load_settings
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.saving import allowed, names
from torchgrad_jax.saving.archive import Reader
from torchgrad_jax.saving.locations import mapper
from torchgrad_jax.saving.machine import Blocked, Machine, NotAllowed, Unsupported
from torchgrad_jax.saving.options import skipping, swaps
from torchgrad_jax.saving.writing import MAGIC, PROTOCOL_VERSION

_RISK = (
    "In PyTorch 2.6, we changed the default value of the `weights_only` argument in `torch.load` from `False` to `True`. Re-running `torch.load` "
    "with `weights_only` set to `False` will likely succeed, but it can result in arbitrary code execution. Do it only if you got the file from a "
    "trusted source."
)
_MORE = (
    "\n\nCheck the documentation of torch.load to learn more about types accepted by default with weights_only "
    "https://pytorch.org/docs/stable/generated/torch.load.html."
)
_TWO_WAYS = (
    "Weights only load failed. This file can still be loaded, to do so you have two options, \033[1mdo those steps only if you trust the source of "
    f"the checkpoint\033[0m. \n\t(1) {_RISK}\n\t(2) Alternatively, to load with `weights_only=True` please check the recommended steps in the "
    "following error message.\n\tWeightsUnpickler error: "
)
_ONE_WAY = f"Weights only load failed. {_RISK}\n"
_REPORT = "Please file an issue with the following so that we can make `weights_only=True` compatible with your use case: WeightsUnpickler error: "
_SCRIPT = f"Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``. {_RISK}"
_NEWEST = 10  # the version of the archive's format that is understood


def load(
    f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None, mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """What `torch.save` wrote to a file, given by its path or as what has `read`, `readline`, `tell` and `seek`.

    map_location: where storages go: a device, a dict from the places that the file has for them, or a function of a storage on the host and its place
    that gives a storage or None. weights_only: refuse all but tensors, plain data and what `add_safe_globals` was given, so that the file cannot run
    code; False runs whatever it says. mmap: map the file, of which then only what is used is read. pickle_load_args: for the unpickler where not only
    weights are loaded. UnpicklingError where weights alone cannot be loaded, RuntimeError, EOFError for a file that is none or is damaged.
    """
    weights_only = _only_weights(weights_only, pickle_module)
    mmap = load_settings.mmap if mmap is None else mmap
    if weights_only:
        if pickle_module is not None:
            raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
        if pickle_load_args:
            warn_user("pickle_load_args only works if `weights_only=False`.")
            unknown = next((name for name in pickle_load_args if name != "encoding"), None)
            if unknown is not None:
                raise TypeError(f"Unpickler.__init__() got an unexpected keyword argument {unknown!r}")
    with _opened(f) as file:
        run = _Run(mapper(map_location), weights_only, pickle_module or pickle, {"encoding": "utf-8", **pickle_load_args})
        if _is_archive(file):
            if mmap and not isinstance(f, (str, os.PathLike)):
                raise ValueError("f must be a file path in order to use the mmap argument")
            return _from_archive(run, file, mmap)
        if mmap:
            name = f"{f}, " if isinstance(f, str) else ""
            raise RuntimeError(
                f"mmap can only be used with files saved with `torch.save({name}_use_new_zipfile_serialization=True), please torch.save your "
                "checkpoint with this option in order to use mmap."
            )
        return _from_old_file(run, file)


def _only_weights(asked: bool | None, pickle_module: Any) -> bool:
    never, always = (
        os.environ.get(name, "0").lower() in ("1", "y", "yes", "true")
        for name in ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    )
    if never and always:
        raise RuntimeError("Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both were set.")
    if always:
        return True
    if asked is None and never:
        warn_user(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the`weights_only` argument was not explicitly passed to "
            "`torch.load`, forcing weights_only=False."
        )
        return False
    return pickle_module is None if asked is None else bool(asked)


@contextmanager
def _opened(f: Any) -> Iterator[Any]:
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            yield file
        return
    try:
        f.seek(f.tell())
    except (io.UnsupportedOperation, AttributeError) as error:
        raise type(error)(
            f"{error}. You can only torch.load from a file that is seekable. Please pre-load the data into a buffer like io.BytesIO and try to load "
            "from it instead."
        ) from None
    yield f


def _is_archive(file: Any) -> bool:
    begin = file.tell()
    head = file.read(4)
    file.seek(begin)
    if isinstance(head, str):
        raise AssertionError("Expected bytes, got str")
    return head == b"PK\3\4"


# ---------------------------------------------------------------------- pickles, whatever they are in


class _Run:
    """How one file is to be read."""

    def __init__(self, place: Callable[[Any, str], Any], weights_only: bool, pickle_module: Any, arguments: dict[str, Any]) -> None:
        self.place, self._weights_only, self._pickle_module, self._arguments = place, weights_only, pickle_module, arguments

    @property
    def weights_only(self) -> bool:
        """Whether the file may run no code."""
        return self._weights_only

    def unpickled(self, content: bytes, persistent_load: Callable[[Any], Any] | None, begin: int = 0) -> tuple[Any, int]:
        """What a pickle makes, and where it ends."""
        if self._weights_only:
            machine = Machine(content, persistent_load, self._arguments["encoding"], begin)
            return _explained(machine.load), machine.end
        stream = io.BytesIO(content)
        stream.seek(begin)
        found = _unpickler(self._pickle_module, persistent_load)(stream, **self._arguments).load()
        return found, stream.tell()

    def restored(self, kind: Any, location: str, array: np.ndarray) -> TypedStorage:
        """The storage that an array is the content of, where it is to be."""
        dtype = UntypedStorage.dtype if kind is UntypedStorage else kind.dtype
        return TypedStorage(wrap_storage=self.place(UntypedStorage._on(Memory(None, array)), location), dtype=dtype, _internal=True)


def _unpickler(pickle_module: Any, load_storage: Callable[[Any], Any] | None) -> Any:
    class Unpickler(pickle_module.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            return super().persistent_load(pid) if load_storage is None else load_storage(pid)

        def find_class(self, module: str, name: str) -> Any:
            return names.find(module, name) if names.is_torch(module) else super().find_class(module, name)

    return Unpickler


def _explained(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except NotAllowed as error:
        raise pickle.UnpicklingError(f"{_TWO_WAYS}{error}{_MORE}") from None
    except Blocked as error:
        raise pickle.UnpicklingError(f"{_ONE_WAY}\n\n{error}{_MORE}") from None
    except Unsupported as error:
        raise pickle.UnpicklingError(f"{_ONE_WAY}{_REPORT}\n\n{error}{_MORE}") from None


def _is_kind(kind: Any) -> bool:
    return kind is UntypedStorage or any(kind is old for old in old_classes.values())


def _described(pid: Any, length: int) -> tuple[Any, str, str, int, int]:
    """What a persistent id says of a storage: kind, key, location, elements and bytes. UnpicklingError where it says nothing of that."""
    if not isinstance(pid, tuple) or len(pid) != length or pid[0] != "storage":
        raise Unsupported(f"Only persistent_load of storage is allowed, but got {type(pid).__name__}")
    kind, key, location, count = pid[1:5]
    if not (_is_kind(kind) and isinstance(key, str) and isinstance(location, str) and type(count) is int and count >= 0):
        raise Unsupported("a storage is told by its class, a key, a location and how many elements it has")
    return kind, key, location, count, count * kind.dtype.itemsize


# ---------------------------------------------------------------------- archives


def _from_archive(run: _Run, file: Any, mmap: bool) -> Any:
    archive = _checked(file)
    if "constants.pkl" in archive:
        if run.weights_only:
            raise RuntimeError(_SCRIPT)
        raise RuntimeError("torchgrad_jax cannot run TorchScript archives: save the module's state_dict() with torch.save instead")
    swapped = swaps(archive.read("byteorder").tobytes().decode("ascii", "replace") if "byteorder" in archive else None)
    mapped = mapping.mmap(file.fileno(), 0, access=mapping.ACCESS_COPY) if mmap else None
    known: dict[str, TypedStorage] = {}

    def load_storage(pid: Any) -> TypedStorage:
        kind, key, location, _, nbytes = _described(pid, 5)
        if key not in known:
            _check_size(archive, key, nbytes)
            array = np.zeros(nbytes, np.uint8) if skipping() else _content(archive, mapped, key, nbytes)
            known[key] = run.restored(kind, location, _turned(array, kind) if swapped else array)
        return known[key]

    return run.unpickled(archive.read("data.pkl").tobytes(), load_storage)[0]


def _checked(file: Any) -> Reader:
    archive = Reader(file)
    if "version" not in archive and ".data/version" not in archive:
        raise RuntimeError(
            'Expected hasRecord("version") to be true, but got false.  (Could this error message be improved?  If so, please report an enhancement '
            "request to PyTorch.)"
        )
    text = archive.read("version" if "version" in archive else ".data/version").tobytes().decode("ascii", "replace")
    if not text.strip().isdecimal() or len(text) > 20:
        raise RuntimeError(f"Couldn't parse the version {text[:20]} as Long Long.")
    if int(text) > _NEWEST:
        raise RuntimeError(
            f"Attempted to read a PyTorch file with version {int(text)}, but the maximum supported version for reading is {_NEWEST}. The version of "
            "your PyTorch installation may be too old, please upgrade PyTorch to latest version to mitigate this issue."
        )
    return archive


def _check_size(archive: Reader, key: str, nbytes: int) -> None:
    size = archive.size(f"data/{key}")
    if size != nbytes:
        raise RuntimeError(
            f"record size ({size} bytes) does not match expected size ({nbytes} bytes = {nbytes} elements * 1 bytes/element) for dtype Byte"
        )


def _content(archive: Reader, mapped: Any, key: str, nbytes: int) -> np.ndarray:
    begin = None if mapped is None else archive.place(f"data/{key}")
    # Elements of 16 bytes begin at multiples of that in what PyTorch writes; what does not is copied.
    if begin is None or begin % 16:
        return archive.read(f"data/{key}")
    return np.frombuffer(mapped, np.uint8, nbytes, begin)  # type: ignore[arg-type] - there is a map where there is a place


def _turned(array: np.ndarray, kind: Any) -> np.ndarray:
    """The content in the other byte order."""
    dtype = kind.dtype.np
    width = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return array.reshape(-1, width)[:, ::-1].reshape(-1) if width > 1 else array


# ---------------------------------------------------------------------- files from before PyTorch 1.6


def _from_old_file(run: _Run, file: Any) -> Any:
    """Pickles of a number, a version, what is said of the machine, the object and the keys of its storages; then their contents."""
    begin = file.tell()
    content = file.read()
    magic, at = run.unpickled(content, None)
    if magic != MAGIC or type(magic) is not int:
        raise RuntimeError("Invalid magic number; corrupt file?")
    version, at = run.unpickled(content, None, at)
    if version != PROTOCOL_VERSION or type(version) is not int:
        raise RuntimeError("Invalid protocol version: " + (str(version) if isinstance(version, int) else type(version).__name__))
    system, at = run.unpickled(content, None, at)
    little = system.get("little_endian", True) if isinstance(system, dict) else True
    contents: dict[str, tuple[Any, np.ndarray]] = {}
    made: dict[tuple[Any, ...], TypedStorage] = {}

    def load_storage(pid: Any) -> Any:
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":  # of which the rest is its source
            return pid[1]
        kind, key, location, _, nbytes = _described(pid, 6)
        part = tuple(pid)[5]
        if key not in contents:
            if nbytes > len(content):
                raise RuntimeError(f"unexpected EOF, expected {nbytes - len(content)} more bytes. The file might be corrupted.")
            contents[key] = kind, np.zeros(nbytes, np.uint8)  # filled below: nothing is computed before
        if contents[key][0] is not kind or contents[key][1].nbytes != nbytes:
            raise Unsupported("a storage that is told of in two ways")
        name = (key, part)
        if name not in made:
            made[name] = run.restored(kind, location, _part(contents[key][1], kind, part))
        return made[name]

    found, at = run.unpickled(content, load_storage, at)
    keys, at = run.unpickled(content, None, at)
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in contents for key in keys) or len(keys) != len(contents):
        raise RuntimeError("the file's list of storages does not name the storages that its objects have. The file might be corrupted.")
    for key in keys:
        at = _fill(content, at, *contents[key], swapped=swaps("little" if little else "big"))
    file.seek(begin + at)
    return found


def _part(array: np.ndarray, kind: Any, part: Any) -> np.ndarray:
    """The part of a storage that another one is, in the oldest files: its key, where it begins and how many elements it has."""
    if part is None:
        return array
    if not (isinstance(part, tuple) and len(part) == 3 and all(type(n) is int and n >= 0 for n in part[1:])):
        raise Unsupported("a part of a storage is told by its key, where it begins and its size")
    width = kind.dtype.itemsize
    found = array[part[1] * width : (part[1] + part[2]) * width]
    if found.nbytes != part[2] * width:
        raise RuntimeError("a storage that is to be part of a smaller one. The file might be corrupted.")
    return found


def _fill(content: bytes, at: int, kind: Any, array: np.ndarray, swapped: bool) -> int:
    """Take a storage's content, which its length stands before; where that ends."""
    end = at + 8 + array.nbytes
    if end > len(content):
        raise RuntimeError(f"unexpected EOF, expected {end - len(content)} more bytes. The file might be corrupted.")
    count = int.from_bytes(content[at : at + 8], "little", signed=True)
    if count * kind.dtype.itemsize != array.nbytes:
        raise RuntimeError(f"a storage of {array.nbytes} bytes for which the file has {count} elements. The file might be corrupted.")
    read = np.frombuffer(content, np.uint8, array.nbytes, at + 8)
    array[:] = _turned(read, kind) if swapped else read
    return end


# ---------------------------------------------------------------------- looking without loading


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The functions and classes that a file names and that loading its weights alone would refuse. ValueError for files that are no archives."""
    with _opened(f) as file:
        if not _is_archive(file):
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        content = _checked(file).read("data.pkl").tobytes()
    users = allowed.users()
    named = {str(argument).partition(" ")[::2]: None for operation, argument, _ in pickletools.genops(content) if operation.name == "GLOBAL"}
    return [allowed.dotted_name(module, name) for module, name in named if allowed.lookup(module, name, users) is None]
