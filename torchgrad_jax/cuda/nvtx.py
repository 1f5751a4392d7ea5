"""`torch.cuda.nvtx`: ranges for NVIDIA's profilers. RuntimeError, always: `torch.autograd.profiler.emit_nvtx` and JAX's profiler make them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    """RuntimeError, always."""
    raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")


mark = range_push = range_pop = range_start = range_end = _refuse


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """RuntimeError, always."""
    _refuse()
    yield
