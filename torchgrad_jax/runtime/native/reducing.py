"""Sums and products, and largest and smallest elements, by functions of C's, in compiled modules (`reducing.pxd`): for XLA, and for the
interpreter. Here there are none."""

from __future__ import annotations

from typing import Any

SUM, LARGEST, SMALLEST, PRODUCT = range(4)


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def reduce(x: Any, out: Any, which: int, first: int, after: int) -> bool:
    """Write into `out` what becomes of `x` when its dimensions from `first` to before `after` are reduced. Returns whether it could: `x` must be
    contiguous, not empty, and of float32 or float64, or sums of int64, or extremes of booleans."""
    return False
