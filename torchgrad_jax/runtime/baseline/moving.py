"""Copies of arrays into memory in row-major order: NumPy's here. In compiled modules a function of C: `moving.pxd`."""

from __future__ import annotations

from typing import Any


def move(array: Any, made: Any) -> None:
    """Copy an array, however it lies in memory, into a contiguous one of the same shape and dtype."""
    made[...] = array


def put(array: Any, part: Any) -> bool:
    """Copy a contiguous array into a part of another one, of the same shape and dtype. False, and nothing is done, where they overlap: not here."""
    part[...] = array
    return True


def join(given: Any, axis: int, apart: bool) -> Any:
    """Arrays of one dtype one after the other along an axis, or along a new one if `apart`. None where they do not fit together, or that is not for
    this."""
    return None
