"""Special functions by C, in compiled modules (`special.pxd`). Here there are none."""

from __future__ import annotations

from typing import Any

# Which function it is.
LOG_GAMMA, DIGAMMA, TRIGAMMA, ERFC, ERF_INVERSE, ERF = range(6)


def compute(x: Any, out: Any, which: int) -> bool:
    """Write a function of each element into `out`. Both contiguous, of float32 or float64. Returns whether there is such a function."""
    return False
