"""What the C library does with memory that is free again: it keeps what is soon taken again, and gives back what compiling took."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

import numpy as np

# The largest array that `keep` lets the C library keep, half of what it keeps at the end of its memory.
_KEPT = 1 << 23


def keep() -> None:
    """Let the memory of arrays up to 8 MiB be used again. glibc asks the system for it each time, and gives it back, until something of that size
    was freed: a fresh page takes 1 us, an addition of float32 in it 0.25."""
    np.empty(_KEPT, np.uint8)


def give_back() -> None:
    """Give back what is free of this process's memory, where the C library can: XLA leaves a hundred megabytes to it. It takes 5 to 20 ms."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`; None for other C libraries."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
