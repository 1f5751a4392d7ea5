"""`torch.accelerator`: the accelerator of this process, whichever it is."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.cuda.streams import Stream
from torchgrad_jax.runtime import accelerators
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime.device import device

__all__ = [
    "current_accelerator", "current_device_index", "current_stream", "device_count", "device_index", "empty_cache",
    "is_available", "max_memory_allocated", "memory_allocated", "memory_stats", "set_device_index", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Whether JAX has a GPU."""
    return bool(devices.gpus())


def device_count() -> int:
    """How many GPUs JAX has."""
    return len(devices.gpus())


def current_accelerator(check_available: bool = False) -> device | None:
    """``device("cuda")`` where there is a GPU."""
    return device("cuda") if devices.gpus() else None


def _some() -> None:
    if not devices.gpus():
        raise RuntimeError("Cannot access accelerator device when none is available.")


def current_device_index() -> int:
    """The index of the GPU that "cuda" means. RuntimeError where there is none, as in all that follow."""
    _some()
    return devices.selected_gpu()


def set_device_index(device: Any) -> None:
    """Let "cuda" mean another GPU."""
    _some()
    accelerators.set_gpu(device)


class device_index:
    """Context manager in which "cuda" means another GPU; None changes nothing."""

    def __init__(self, device: int | None) -> None:
        self.idx, self.prev_idx = device, -1

    def __enter__(self) -> None:
        if self.idx is not None:
            self.prev_idx = current_device_index()
            set_device_index(self.idx)

    def __exit__(self, *error: Any) -> None:
        if self.idx is not None:
            devices.select_gpu(self.prev_idx)


def synchronize(device: Any = None) -> None:
    """Wait until the GPU is done with what has been recorded."""
    _some()
    accelerators.wait(device)


def current_stream(device: Any = None) -> Stream:
    """The one stream of the GPU."""
    _some()
    return Stream(device)


def empty_cache() -> None:
    """Does nothing: JAX keeps freed memory in its own pool."""
    _some()


def memory_allocated(device_index: Any = None) -> int:
    """The bytes of all arrays of this process on the GPU."""
    _some()
    return accelerators.memory(device_index).get("bytes_in_use", 0)


def max_memory_allocated(device_index: Any = None) -> int:
    """The most bytes that have been in use at a time since the process began."""
    _some()
    return accelerators.memory(device_index).get("peak_bytes_in_use", 0)


def memory_stats(device_index: Any = None) -> dict[str, int]:
    """What JAX counts of the GPU's memory, under JAX's names."""
    _some()
    return accelerators.memory(device_index)
