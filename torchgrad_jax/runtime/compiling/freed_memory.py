"""What the C library does with memory that is free again: it keeps what is soon taken again, and gives back what compiling took."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache

import numpy as np

# The largest array that `keep` lets the C library keep, the most that it keeps without being told, and half of what it keeps at its memory's end.
_KEPT = (1 << 25) - (1 << 16)


def keep() -> None:
    """Let the memory of arrays up to 32 MiB be used again. glibc asks the system for it each time, and gives it back, until something of that size
    was freed: a fresh page takes 1 us, an addition of float32 in it 0.25."""
    np.empty(_KEPT, np.uint8)


def keep_for(size: int) -> None:
    """Let the memory that a program works in, `size` bytes in one piece, be used again by its next run. glibc finds out by itself what is to be kept,
    but up to 32 MiB: 40 MiB, taken and given back at each step, took a third of the time of a training step of a small transformer.

    Nothing is done for more than 1 GiB, nor where another C library manages memory."""
    global _most_kept
    if _most_kept < size <= _MOST and (set_option := _mallopt()) is not None:
        size += size // 8  # another program like it needs about as much
        if set_option(_MMAP_THRESHOLD, size):  # older ones refuse so much
            set_option(_TRIM_THRESHOLD, 2 * size)  # as they do it themselves
        _most_kept = size


# Up to which size glibc keeps by itself, or was told to; what it is told at most; the names of its options.
_most_kept, _MOST = 1 << 25, 1 << 30
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


@cache
def _mallopt() -> Callable[[int, int], int] | None:
    library = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    return getattr(library, "mallopt", None) if hasattr(library, "gnu_get_libc_version") else None


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
