"""`torch._dynamo.utils`: what programs ask of it before they compile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchgrad_jax.runtime import device as devices

__all__ = ["disable_cache_limit", "is_compile_supported"]


def is_compile_supported(device_type: Any) -> bool:
    """Whether functions of tensors on a device of this type ("cpu", "cuda") can be compiled: XLA does so for each that there is."""
    kind = str(device_type).partition(":")[0]
    return kind == "cpu" or (kind == "cuda" and bool(devices.gpus()))


@contextmanager
def disable_cache_limit() -> Iterator[None]:
    """A block in which functions may be compiled as often as need be; so they may elsewhere."""
    yield
