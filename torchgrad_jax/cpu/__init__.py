"""`torch.cpu`: the host as a device."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.cpu import amp
from torchgrad_jax.runtime.recorder import recorder

__all__ = ["amp", "current_device", "device_count", "is_available", "is_initialized", "set_device", "synchronize"]


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """One."""
    return 1


def current_device() -> str:
    """``"cpu"``."""
    return "cpu"


def set_device(device: Any) -> None:
    """Does nothing: there is one."""


def synchronize(device: Any = None) -> None:
    """Run what has been recorded in this thread."""
    recorder().flush("synchronize")
