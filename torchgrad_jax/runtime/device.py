"""`torch.device` and its counterpart among JAX's devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import NamedSharding, SingleDeviceSharding

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime._jax_compat import call_x64, synchronous_cpu
from torchgrad_jax.runtime.pickles import in_pickles

# PyTorch's device type -> JAX's platform name.
PLATFORMS = {"cpu": "cpu", "cuda": "gpu", "xla": "tpu"}
_TYPES = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "rocm": "cuda", "tpu": "xla"}
_KNOWN = "cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, vulkan, mps, meta, hpu, mtia, privateuseone"


_NEGATIVE = "Device index must not be negative"


class device:
    """A device by PyTorch's name: ``device("cpu")``, ``device("cuda", 1)``, ``device("cuda:1")``.

    ``cuda`` is JAX's ``gpu`` platform and ``xla`` its ``tpu``; other types can be named, but not used. Equal devices are one object.
    As a context manager it is the default device of the block, as a decorator that of the function.
    RuntimeError for a type that does not exist, TypeError for what names none.
    """

    __slots__ = ("type", "index")
    type: str
    index: int | None
    _interned: dict[tuple[str, int | None], device] = {}

    def __new__(cls, type: Any, index: int | None = None) -> device:
        if isinstance(type, device):
            return type
        if isinstance(type, int) and not isinstance(type, bool) and index is None:
            if type < 0:
                raise RuntimeError(_NEGATIVE)
            if not gpus():
                raise RuntimeError("Cannot access accelerator device when none is available.")
            type, index = "cuda", type
        if not isinstance(type, str):
            raise TypeError(f"device() received an invalid combination of arguments - got ({type.__class__.__name__})")
        if index is not None and (not isinstance(index, int) or isinstance(index, bool)):
            raise TypeError(f"device(): argument 'index' (position 2) must be int, not {index.__class__.__name__}")
        if index is not None and index < 0:
            raise RuntimeError(_NEGATIVE)
        kind, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {type}")
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        if not kind.replace("_", "").isalpha():
            raise RuntimeError(f"Invalid device string: '{type}'")
        if kind not in _KNOWN.split(", "):
            raise RuntimeError(f"Expected one of {_KNOWN} device type at start of device string: {kind}")
        found = cls._interned.get((kind, index))
        if found is None:
            found = object.__new__(cls)
            found.type, found.index = kind, index
            cls._interned[kind, index] = found
        return found

    def __repr__(self) -> str:
        return f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.type,) if self.index is None else (self.type, self.index)

    def __enter__(self) -> device:
        _outside.append(default())
        set_default(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        set_default(_outside.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return call


@in_pickles("_rebuild_device")
def _named(type: str, index: int | None = None) -> device:
    """What pickle calls: the class goes by PyTorch's name where the package does."""
    return device(type, index)


CPU = device("cpu")
# Of tensors without content.
META = device("meta")
# The device of tensors made without `device=`, those of the blocks around, and the GPU that "cuda" means.
_default: device = CPU
_outside: list[device] = []
_selected_gpu = 0


def default() -> device:
    """The device of tensors made without `device=`."""
    return _default


def set_default(where: device) -> None:
    """Make tensors on `where` unless told otherwise."""
    global _default
    _default = where


def selected_gpu() -> int:
    """The index of the GPU that "cuda" means."""
    return _selected_gpu


def select_gpu(index: int) -> None:
    """Let "cuda" mean the GPU of this index."""
    global _selected_gpu
    _selected_gpu = index


@functools.cache
def gpus() -> tuple[Any, ...]:
    """JAX's GPUs that this process can use. Starts JAX's backend."""
    if modes.without_xla:
        return ()
    try:
        return tuple(jax.local_devices(backend="gpu"))
    except RuntimeError:
        return ()


def gpus_in_use() -> bool:
    """Whether there is a GPU and JAX's backend was started for it by `gpus`. Starts nothing."""
    return gpus.cache_info().currsize > 0 and bool(gpus())


def settled(where: device) -> device:
    """The device that a tensor made on `where` says it is on: "cuda" is one of the GPUs, "cpu:0" is "cpu". An error where JAX has none such."""
    if where is CPU:
        return where
    if where.type == "meta":
        return META
    if where.index is None:
        where = device(where.type, _selected_gpu if where.type == "cuda" else 0)
    elif where.index == 0 and where.type == "cpu":
        return CPU
    jax_device(where)
    return where


@functools.cache
def jax_device(where: device) -> Any:
    """The JAX device behind `where`. Starts JAX's backend. RuntimeError where there is none.

    The CPU is a client of our own, which runs programs in the thread that calls them. Where JAX was told to make several devices of the CPU
    it is JAX's.
    """
    if modes.without_xla:
        again = "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method\n"
        raise RuntimeError(f"{again if where.type == 'cuda' else ''}device {where} cannot be used here: {modes.without_xla}")
    if where is CPU and not _several_cpus():
        own = synchronous_cpu()
        if own is not None:
            return own
    try:
        found = jax.local_devices(backend=PLATFORMS[where.type])
    except KeyError:
        raise NotImplementedError(f"Could not run on device type '{where.type}': JAX's platforms here are {', '.join(PLATFORMS)}") from None
    except RuntimeError as error:
        there = ", ".join(str(d) for d in jax.devices())
        if where.type == "cuda":  # the class and sentence of PyTorch without CUDA
            raise AssertionError(
                f"Torch not compiled with CUDA enabled\nJAX has no GPU in this process; its devices are: {there}. "
                "Use device='cpu', or install jax[cuda12] or jax[cuda13]."
            ) from None
        raise RuntimeError(f"device {where} is not available: {error}; JAX's devices are: {there}") from None
    if (where.index or 0) >= len(found):
        raise RuntimeError(f"device {where} is not available: JAX's devices of this kind are {', '.join(str(d) for d in found)}")
    return found[where.index or 0]


def _several_cpus() -> bool:
    try:
        return len(jax.local_devices(backend="cpu")) > 1
    except RuntimeError:  # JAX was told to start without its own
        return False


def device_of(array: Any) -> device:
    """The device of a concrete `jax.Array`; of one that is spread over a mesh, its first."""
    found = next(iter(array.devices()))
    if found.platform == "cpu":  # ours, or the first of JAX's
        return device("cpu", found.id) if found.id else CPU
    return device(_TYPES.get(found.platform, "xla"), found.local_hardware_id or 0)


@functools.cache
def is_default(where: device) -> bool:
    """Whether JAX would place uncommitted data on `where` by itself."""
    return jax.local_devices()[0] == jax_device(where)


@functools.cache
def placed(where: device) -> dict[str, Any]:
    """The options of `jax.jit` for a program that runs on `where`, whatever its inputs are: arrays there, or host data."""
    if is_default(where):
        return {}
    there = SingleDeviceSharding(jax_device(where))
    return {"in_shardings": there, "out_shardings": there}


def put(array: Any, where: device) -> Any:
    """Host data, or an array of another device or client, on a device. On JAX's default device it stays uncommitted, as results are: a program whose
    inputs are committed is another program to `jax.jit`, and would be compiled again."""
    return call_x64(jax.device_put, array) if is_default(where) else call_x64(jax.device_put, array, jax_device(where))


def at_home(array: Any, where: device) -> Any:
    """A `jax.Array` of the user's as one of ours: on the CPU, of our own client."""
    if where is CPU and not isinstance(array.sharding, _spread()) and next(iter(array.devices())) != jax_device(CPU):
        return put(array, CPU)
    return array


def for_user(array: Any) -> Any:
    """An array of ours as one of the user's JAX: host data, and what our own client holds, on JAX's device. What has 64 bits has 32 where the user
    did not set `jax_enable_x64`, as JAX makes of all data from outside. A tracer stays what it is."""
    import numpy as np

    if isinstance(array, Tracer):
        return array
    if isinstance(array, jax.Array) and (at_home(array, CPU) is not array or device_of(array) is not CPU):
        narrow = jax.dtypes.canonicalize_dtype(array.dtype)
        return array if array.dtype == narrow else call_x64(array.astype, narrow)
    return jax.numpy.asarray(np.asarray(array))


def live_arrays() -> int:
    """How many arrays on devices there are in this process: JAX's, which `jax.live_arrays` counts, and those of our own CPU client."""
    own = jax_device(CPU).client
    return len(jax.live_arrays()) + (0 if own is jax.local_devices(backend="cpu")[0].client else len(own.live_arrays()))


@functools.cache
def _spread() -> type:
    return NamedSharding
