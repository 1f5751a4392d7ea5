"""The largest elements of windows by functions of C's, in compiled modules (`pooling.pxd`): for XLA, and for the interpreter. Here there are none."""

from __future__ import annotations

from typing import Any


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def pool(x: Any, grad: Any, out: Any, how: Any) -> bool:
    """Write into `out` the largest elements of the windows of images `x` (..., height, width); or, given their gradient `grad`, that of `x`. All
    contiguous, of float32, with at least one window. how: twelve int64, see `pooling.pxd`. Returns whether there is such a function."""
    return False
