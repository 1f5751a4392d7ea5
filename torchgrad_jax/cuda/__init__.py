"""`torch.cuda`: JAX's GPUs under PyTorch's names.

Without one it answers as PyTorch does when it is built without CUDA: False, 0, nothing to do, and AssertionError where a GPU is asked for.
"""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any, NamedTuple

from torchgrad_jax.cuda import amp, nvtx
from torchgrad_jax.cuda.streams import (
    CUDAGraph,
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
    refuse_snapshot,
    set_stream,
    stream,
)
from torchgrad_jax.functions import legacy, random
from torchgrad_jax.runtime import accelerators
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime.recovery import AcceleratorError, OutOfMemoryError

__all__ = [
    "AcceleratorError", "CUDAGraph", "CudaError", "DeferredCudaCallError", "Event", "OutOfMemoryError", "Stream", "StreamContext", "amp",
    "can_device_access_peer", "current_device", "current_stream", "default_stream", "device", "device_count", "empty_cache", "get_arch_list",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all", "init", "initial_seed",
    "ipc_collect", "is_available", "is_bf16_supported", "is_initialized", "is_tf32_supported", "manual_seed", "manual_seed_all",
    "max_memory_allocated", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats", "memory_summary", "nvtx",
    "reset_max_memory_allocated", "reset_peak_memory_stats", "seed", "seed_all", "set_device", "set_rng_state", "set_rng_state_all", "set_stream",
    "stream", "synchronize", "is_current_stream_capturing", "memory_snapshot", "memory_cached", "max_memory_cached", "get_sync_debug_mode",
    "set_sync_debug_mode", "set_per_process_memory_fraction", "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor",
    "FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "ShortTensor", "graph", "graph_pool_handle", "make_graphed_callables",
]  # fmt: skip

_CLASSES = legacy.classes("torch.cuda")
BFloat16Tensor, HalfTensor, FloatTensor, DoubleTensor = (_CLASSES[f"{title}Tensor"] for title in ("BFloat16", "Half", "Float", "Double"))
BoolTensor, ByteTensor, CharTensor = (_CLASSES[f"{title}Tensor"] for title in ("Bool", "Byte", "Char"))
ShortTensor, IntTensor, LongTensor = (_CLASSES[f"{title}Tensor"] for title in ("Short", "Int", "Long"))


class CudaError(RuntimeError):
    """Never raised, for `except`."""


class DeferredCudaCallError(Exception):
    """Never raised, for `except`."""


def is_available() -> bool:
    """Whether JAX has a GPU in this process."""
    return bool(devices.gpus())


def device_count() -> int:
    """How many GPUs JAX has in this process."""
    return len(devices.gpus())


def is_initialized() -> bool:
    """Whether the GPUs can be used: JAX starts them all when it is first asked."""
    return is_available()


def __getattr__(name: str) -> Any:
    """`_initialized`: whether a GPU was used or asked for; asking this starts none."""
    if name == "_initialized":
        return devices.gpus_in_use()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def init() -> None:
    """Start the GPUs. AssertionError where there is none."""
    accelerators.gpu()


def current_device() -> int:
    """The index of the GPU that ``"cuda"`` means. AssertionError where there is none."""
    accelerators.gpu()
    return devices.selected_gpu()


def set_device(device: Any) -> None:
    """Let ``"cuda"`` mean another GPU. A negative number changes nothing."""
    accelerators.set_gpu(device)


class device:
    """Context manager in which ``"cuda"`` means another GPU; None or a negative number changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else device if isinstance(device, int) else accelerators.index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = devices.selected_gpu()
        accelerators.set_gpu(self.idx)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        devices.select_gpu(self.prev_idx)


class _Properties(NamedTuple):
    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_name(device: Any = None) -> str:
    """What kind of GPU it is."""
    return str(accelerators.gpu(device).device_kind)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability, as (major, minor)."""
    found = getattr(accelerators.gpu(device), "compute_capability", "0.0")
    major, _, minor = str(found).partition(".")
    return int(major), int(minor or 0)


def get_device_properties(device: Any = None) -> _Properties:
    """Name, compute capability, memory that JAX may use, and number of multiprocessors."""
    found = accelerators.gpu(device)
    limit = accelerators.memory(device).get("bytes_limit", 0)
    return _Properties(str(found.device_kind), *get_device_capability(device), limit, getattr(found, "core_count", 0))


def get_arch_list() -> list[str]:
    """The architectures that kernels were compiled for in advance: none, XLA compiles for the GPU it finds."""
    return []


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether both are GPUs of this process: JAX copies between all of them."""
    accelerators.gpu(device)
    accelerators.gpu(peer_device)
    return True


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is a GPU that computes in bfloat16; XLA emulates it where the hardware does not."""
    return is_available() and (including_emulation or get_device_capability() >= (8, 0))


def is_tf32_supported() -> bool:
    """Whether there is a GPU that multiplies in TF32."""
    return is_available() and get_device_capability() >= (8, 0)


# ---------------------------------------------------------------------- waiting and memory


def synchronize(device: Any = None) -> None:
    """Run what has been recorded, and wait until the GPU is done with it."""
    accelerators.wait(device)


def empty_cache() -> None:
    """Does nothing: JAX keeps freed memory in its own pool (XLA_PYTHON_CLIENT_PREALLOCATE and XLA_PYTHON_CLIENT_ALLOCATOR set how)."""


def ipc_collect() -> None:
    """Does nothing: no memory is shared between processes. AssertionError where there is no GPU."""
    accelerators.gpu()


def memory_allocated(device: Any = None) -> int:
    """The bytes of all arrays of this process on the GPU."""
    return accelerators.memory(device).get("bytes_in_use", 0)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that have been in use at a time since the process began."""
    return accelerators.memory(device).get("peak_bytes_in_use", 0)


def memory_reserved(device: Any = None) -> int:
    """The bytes that JAX's allocator holds."""
    found = accelerators.memory(device)
    return found.get("pool_bytes", found.get("bytes_reserved", 0))


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that JAX's allocator has held."""
    found = accelerators.memory(device)
    return found.get("peak_pool_bytes", found.get("peak_bytes_reserved", 0))


def memory_stats(device: Any = None) -> dict[str, int]:
    """What JAX counts of the GPU's memory, under JAX's names."""
    return accelerators.memory(device)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the memory that JAX may use. AssertionError where there is no GPU."""
    accelerators.gpu(device)
    found = accelerators.memory(device)
    limit = found.get("bytes_limit", 0)
    return limit - found.get("bytes_in_use", 0), limit


def reset_peak_memory_stats(device: Any = None) -> None:
    """Warns where there is a GPU: JAX counts its peak from the start of the process and cannot begin anew."""
    if is_available():
        warnings.warn("JAX counts peak memory from the start of the process; torch.cuda.max_memory_allocated() is not reset", stacklevel=2)


reset_max_memory_allocated = reset_peak_memory_stats
memory_snapshot = refuse_snapshot


def memory_cached(device: Any = None) -> int:
    """Deprecated name of `memory_reserved`."""
    warnings.warn("`torch.cuda.memory_cached` has been renamed to `torch.cuda.memory_reserved`", FutureWarning, stacklevel=2)
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """Deprecated name of `max_memory_reserved`."""
    warnings.warn("`torch.cuda.max_memory_cached` has been renamed to `torch.cuda.max_memory_reserved`", FutureWarning, stacklevel=2)
    return max_memory_reserved(device)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """What JAX counts of the GPU's memory, as lines of text. AssertionError where there is no GPU."""
    accelerators.gpu(device)
    return "\n".join(f"{name:40}{count:20,d}" for name, count in sorted(accelerators.memory(device).items()))


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """AssertionError where there is no GPU, else NotImplementedError: XLA_PYTHON_CLIENT_MEM_FRACTION sets it before JAX starts."""
    accelerators.gpu(device)
    raise NotImplementedError("torch.cuda.set_per_process_memory_fraction: set XLA_PYTHON_CLIENT_MEM_FRACTION before the program starts")


def get_sync_debug_mode() -> int:
    """0. AssertionError where there is no GPU."""
    accelerators.gpu()
    return 0


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """AssertionError where there is no GPU, NotImplementedError for another mode than "default": `torchgrad_jax.explain` tells what is waited for."""
    accelerators.gpu()
    if debug_mode not in (0, "default"):
        raise NotImplementedError("torch.cuda.set_sync_debug_mode: torchgrad_jax.explain() tells which line looked at values and so waited for them")


# ---------------------------------------------------------------------- random numbers: one generator, on the host, serves all devices


def manual_seed(seed: int) -> None:
    """Seed the default generator, which serves all devices, if there is a GPU."""
    if is_available():
        random.manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seed the default generator by chance, if there is a GPU."""
    if is_available():
        random.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the default generator. AssertionError where there is no GPU."""
    accelerators.gpu()
    return random.initial_seed()


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of the default generator. AssertionError where there is no GPU."""
    accelerators.gpu(device)
    return random.get_rng_state()


def get_rng_state_all() -> list[Any]:
    """The state of the generator of each GPU; it is the same one."""
    return [random.get_rng_state() for _ in devices.gpus()]


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Set the state of the default generator. AssertionError where there is no GPU."""
    accelerators.gpu(device)
    random.set_rng_state(new_state)


def set_rng_state_all(new_states: list[Any]) -> None:
    """Set the states that `get_rng_state_all` gave."""
    for state in new_states[:1]:
        set_rng_state(state)
