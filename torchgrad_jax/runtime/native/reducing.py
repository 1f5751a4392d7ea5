"""Sums, and largest and smallest elements, by functions of C's, in compiled modules (`reducing.pxd`): for the interpreter. Here there are none."""

from __future__ import annotations

from typing import Any

SUM, LARGEST, SMALLEST = range(3)


def reduce(x: Any, out: Any, which: int, first: int, after: int) -> bool:
    """Write into `out` what becomes of `x` when its dimensions from `first` to before `after` are reduced. Returns whether it could: `x` must be
    contiguous, of float32 or float64, and not empty."""
    return False
