"""Arrays as contiguous ones. Compiled, what is turned is copied in tiles, and short runs without NumPy's loops: two to six times as fast."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import moving
from torchgrad_jax.runtime.native import arrays

# From so many elements on it pays to ask.
LEAST = 4096
concatenate = getattr(np.concatenate, "__wrapped__", np.concatenate)  # itself, without asking what else might have been given


def contiguous(array: Any) -> Any:
    """The array, if it is contiguous, or a copy that is."""
    return array if arrays.is_contiguous(array) else copied(array)


def in_one_piece(array: Any) -> Any:
    """A matrix, or several, whose rows or columns lie in one piece each, as they have to for BLAS: NumPy multiplies others element by element, or
    copies them."""
    rows, columns = array.strides[-2:]
    return array if array.itemsize in (rows, columns) else contiguous(array)


def copied(array: Any) -> Any:
    """A contiguous copy."""
    if array.size < LEAST or not _is_plain(array):
        return np.array(array, order="C")
    if array.dtype.isbuiltin == 2:  # bfloat16: its bits
        return copied(array.view(np.uint16)).view(array.dtype)
    made = arrays.empty(array.shape, array.dtype)
    moving.move(array, made)
    return made


def written(part: Any, array: Any) -> None:
    """``part[...] = array``."""
    fits = array.shape == part.shape and array.dtype is part.dtype and arrays.is_contiguous(array) and array.size >= LEAST and _is_plain(array)
    if not fits or not moving.put(array, part):
        part[...] = array


def joined(given: Any, axis: int) -> Any:
    """What `np.concatenate` gives, which takes two to four times as long."""
    made = moving.join(given, axis, False)
    return concatenate(given, axis) if made is None else made


def stacked(given: Any, axis: int) -> Any:
    """What `np.stack` gives, which takes 5 to 13 times as long of small ones. ValueError where shapes differ."""
    made = moving.join(given, axis, True)
    if made is not None:
        return made
    shape = given[0].shape
    if axis or any([array.shape != shape for array in given]):
        return np.stack(given, axis)
    return concatenate([array[None] for array in given]) if shape else np.array(given, given[0].dtype)


def own(array: Any) -> Any:
    """A result as it is kept: contiguous, not to be written to, and not a small part of something large."""
    if arrays.kept(array):
        return array
    if type(array) is not np.ndarray:
        array = np.asarray(array)
    base, flags = array.base, array.flags
    if not flags.c_contiguous or (base is not None and isinstance(base, np.ndarray) and base.nbytes > 2 * array.nbytes + 1024):
        array = copied(array)
    array.setflags(write=False)
    return array


def _is_plain(array: Any) -> bool:
    """Whether the elements are numbers that C knows, at addresses that it expects. Of the dtypes of `ml_dtypes` there are no buffers, but
    of bfloat16's bits; what was read from a file may lie anywhere."""
    dtype = array.dtype
    return array.flags.aligned and ((dtype.isbuiltin == 1 and array.itemsize in (1, 2, 4, 8, 16)) or dtype.name == "bfloat16")


def reshaped(array: Any, shape: Any) -> Any:
    """The array in another shape: where that is no view, of a copy."""
    if array.size >= LEAST and not arrays.is_contiguous(array) and not _is_view(array.shape, array.strides, shape):
        array = copied(array)
    return array.reshape(shape)


def _is_view(given: Any, strides: Any, shape: Any) -> bool:
    """Whether what lies in memory with these strides can be seen in another shape: where each gap between its elements is between two dimensions."""
    gaps, size, following = [], 1, 0
    for i in range(len(given) - 1, -1, -1):
        n, stride = given[i], strides[i]
        if n == 1:
            continue
        if size > 1 and stride != following:
            gaps.append(size)
        following = n * stride
        size *= n
    size = 1
    for i in range(len(shape) - 1, -1, -1):
        size *= shape[i]
        if gaps and gaps[0] == size:
            gaps.pop(0)
    return not gaps
