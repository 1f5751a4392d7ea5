"""Arrays made as large as others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.cost import CHEAP, weight

# Up to this many elements a filled array costs less than a view that repeats elements: `np.broadcast_to` takes 6 us.
_FILLED = 1 << 14


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
    if size > _FILLED and not filled:
        return (lambda x: np.broadcast_to(x, shape)), 5000.0
    empty = np.empty

    def fill(x: Any) -> Any:
        out = empty(shape, dtype)
        out[...] = x
        return out

    return fill, CHEAP * size * weight(dtype)
