"""`torch.accelerator`: the accelerator of this process, whichever it is."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime import accelerators
from torchgrad_jax.runtime import device as devices
from torchgrad_jax.runtime.device import device

__all__ = ["current_accelerator", "current_device_index", "device_count", "is_available", "set_device_index", "synchronize"]


def is_available() -> bool:
    """Whether JAX has a GPU."""
    return bool(devices.gpus())


def device_count() -> int:
    """How many GPUs JAX has."""
    return len(devices.gpus())


def current_accelerator(check_available: bool = False) -> device | None:
    """``device("cuda")`` where there is a GPU."""
    return device("cuda") if devices.gpus() else None


def current_device_index() -> int:
    """The index of the GPU that "cuda" means. AssertionError where there is none."""
    accelerators.gpu()
    return devices.selected_gpu()


def set_device_index(device: Any) -> None:
    """Let "cuda" mean another GPU."""
    accelerators.set_gpu(device)


def synchronize(device: Any = None) -> None:
    """Wait until the GPU is done with what has been recorded."""
    accelerators.wait(device)
