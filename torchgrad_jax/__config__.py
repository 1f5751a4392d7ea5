"""`torch.__config__`: what the package runs on."""

from __future__ import annotations

import os
import platform
from importlib import metadata

import torchgrad_jax
from torchgrad_jax.runtime import settings

__all__ = ["parallel_info", "show"]


def show() -> str:
    """The versions of the package and of what it runs on, and XLA's flags; starts no backend."""
    lines = [
        f"torchgrad_jax {torchgrad_jax.version.torchgrad_jax} on XLA",
        *(f"  - {name} {metadata.version(name)}" for name in ("jax", "jaxlib", "numpy")),
        f"  - Python {platform.python_version()} on {platform.platform()}", f"  - XLA_FLAGS={os.environ.get('XLA_FLAGS', '')}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def parallel_info() -> str:
    """How many threads compute on the CPU."""
    return f"XLA's CPU threads:\n\ttorch.get_num_threads() : {settings.get_num_threads()}\n\tos.cpu_count() : {os.cpu_count()}\n"
