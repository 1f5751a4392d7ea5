"""The largest elements of windows by functions of C's, in compiled modules (`pooling.pxd`): for XLA, and for the interpreter. Here there are none."""

from __future__ import annotations

from typing import Any


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def pool(given: Any, made: Any, how: Any) -> bool:
    """Write into the arrays `made` the largest elements of the windows of volumes, or others, as `how` says, int64: see `pooling.pxd`. All
    contiguous, of float32 or float64 and int64, with at least one window. Returns whether there is such a function."""
    return False
