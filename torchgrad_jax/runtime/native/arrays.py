"""NumPy's arrays, asked as C asks them. Compiled (`arrays.pxd`), their own fields are read, which takes a tenth of asking NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

_ndarray = np.ndarray


def is_contiguous(array: Any) -> bool:
    """Whether the elements lie one behind the other, in the order of rows."""
    return array.flags.c_contiguous


def empty(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """A new array, whose elements are yet to be written."""
    return np.empty(shape, dtype)


def align() -> None:
    """Let arrays that NumPy makes in this context (`contextvars`) begin at a line of the processor's caches: here they begin where NumPy has it."""


def kept(array: Any) -> bool:
    """Let an array that is memory of its own, in the order of rows, not be written to any more. Whether it is one."""
    if type(array) is not _ndarray or array.base is not None or not array.flags.c_contiguous:
        return False
    array.setflags(write=False)
    return True


def set_writable(array: Any, may_be: bool) -> None:
    """Let an array, which is memory of its own, be written to, or not any more."""
    array.setflags(write=may_be)


def part(array: Any, dim: int, begin: int, length: int, step: int) -> Any:
    """A view of `length` slices of an array along `dim`, every `step`-th, from `begin` on, or of that one, without the dimension, if `length` is
    negative. None where not all of them are inside."""
    span = 1 if length < 0 else (length - 1) * step + 1 if length else 0
    if not 0 <= begin <= array.shape[dim] - span:
        return None
    piece = begin if length < 0 else slice(begin, begin + span, step)
    return array[(*(slice(None),) * dim, piece, ...)]


def changed(array: Any, change: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, given: Any) -> bool:
    """Change the part of an array, in the order of rows, that lies by these strides, and from an offset, in elements, in place: add to it, subtract,
    multiply, divide it by, or set it to an array of its shape and dtype, or a number. False where nothing was done: here nothing is."""
    return False


def taken(array: Any, index: Any, dim: int) -> Any:
    """What an array has along a dimension at the places of another one, of int64, which count from the end where they are less than 0. None where
    they are not all in range, or one of the two does not lie in the order of rows, but for slices along the first dimension; here for all."""
    return None
