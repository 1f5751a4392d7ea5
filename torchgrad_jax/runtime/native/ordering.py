"""The places of elements in their order, and in that of others, by functions of C's, in compiled modules (`ordering.pxd`): for the interpreter. Here
there are none, but for the last resort of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def order(x: Any, places: Any, values: Any, largest: bool) -> bool:
    """Write into `places` (..., k), int64, where in each row of `x` (..., n) the k smallest elements are, or the largest, in their order: equal ones
    in the order of their places, NaN as the largest; and into `values`, unless it is None, what they are. Returns whether it could: `x` must be
    contiguous, of float32, float64, int32 or int64, and n less than 2 ** 32."""
    return False


def are_within(index: Any, low: int, size: int) -> bool:
    """Whether all of an index of int64, contiguous, is in [low, low + size)."""
    return not np.count_nonzero((index - low).view(np.uint64) >= size)  # smaller ones are large then


def search(x: Any, sought: Any, places: Any, right: bool) -> bool:
    """Write into `places` (..., m), int64, where in each row of `x` (..., n), or in the only one, the elements of `sought` (..., m) would be put:
    before what is not less, or (right) before what is greater, halving from the middle. Returns whether it could: all must be contiguous, `x` and
    `sought` of one of these dtypes and not empty."""
    return False
