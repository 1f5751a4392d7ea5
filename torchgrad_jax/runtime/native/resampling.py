"""Sums of a few elements along a dimension by a function of C's, in compiled modules (`resampling.pxd`): for XLA, and for the interpreter. Here there
is none."""

from __future__ import annotations

from typing import Any


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def resample(x: Any, out: Any, how: Any) -> bool:
    """Write into `out` (outer, new, inner) sums of a few elements each of x (outer, n, inner). All contiguous, of float32, and not empty. how: int64,
    see `resampling.pxd`. Returns whether there is such a function."""
    return False
