"""Arrays made as large as others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.cost import CHEAP, weight

# Up to this many elements a filled array costs less than a view that repeats elements, which all that reads it goes through in more steps.
FILLED = 1 << 14


def repeated(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A view of `x` that repeats dimensions of size 1, as `np.broadcast_to` gives it, which takes 2.4 us and this 0.8 (where the processor has done
    much else meanwhile, 39 and 15). Nobody writes to it."""
    if not x.flags.c_contiguous or x.dtype.isbuiltin != 1:
        return np.broadcast_to(x, shape)
    own = x.shape
    steps = tuple([0 if n == 1 else step for n, step in zip(own, x.strides, strict=True)]) if x.size != 1 else (0,) * len(own)
    found = np.ndarray(shape, x.dtype, x, 0, (0,) * (len(shape) - len(own)) + steps)
    found.flags.writeable = False
    return found


def expansion_index(dimensions: tuple[int, ...], rank: int) -> tuple[Any, ...] | None:
    """The index that puts an array's dimensions at those of a result where NumPy's broadcasting, which begins at the last one, looks for them.
    None if they are there."""
    if not dimensions:
        return None
    index = tuple([slice(None) if d in dimensions else None for d in range(dimensions[0], rank)])
    return None if None not in index else index


def is_prefixed(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether `shape` is one's own after dimensions of size 1."""
    return shape[len(shape) - len(own) :] == own and all([n == 1 for n in shape[: len(shape) - len(own)]])


def broadcaster(own: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype, filled: bool) -> tuple[Callable[[Any], Any], float]:
    """What makes an array of shape `own` one of `shape`, and what that costs. filled: it is to have memory of its own, even if it is large."""
    size = math.prod(shape)
    if is_prefixed(own, shape):
        index = (None,) * (len(shape) - len(own)) + (...,)
        return (lambda x: x[index]), 0.0
    if size > FILLED and not filled:
        return (lambda x: repeated(x, shape)), 1500.0
    empty = np.empty

    def fill(x: Any) -> Any:
        out = empty(shape, dtype)
        out[...] = x
        return out

    return fill, CHEAP * size * weight(dtype)
