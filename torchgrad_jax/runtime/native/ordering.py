"""The places of elements in their order by a function of C's, in compiled modules (`ordering.pxd`): for the interpreter. Here there is none."""

from __future__ import annotations

from typing import Any


def order(x: Any, places: Any, values: Any, largest: bool) -> bool:
    """Write into `places` (..., k), int64, where in each row of `x` (..., n) the k smallest elements are, or the largest, in their order: equal ones
    in the order of their places, NaN as the largest; and into `values`, unless it is None, what they are. Returns whether it could: `x` must be
    contiguous, of float32, float64, int32 or int64, and k at most 64, or n at most 4,096."""
    return False
