"""Products of vectors, of float32 (the letter f) or float64 (d) and of length n: by functions of C's, in compiled modules (`vectors.pxd`). Here they
are NumPy's."""

from __future__ import annotations

from typing import Any


def dot(letter: int, a: Any, b: Any, n: int) -> float:
    """The sum of the products of their numbers."""
    return float(a @ b)


def add_times(letter: int, to: Any, a: Any, factor: float, n: int) -> None:
    """Add to a vector another one times a number, which is rounded to their dtype."""
    to += a.dtype.type(factor) * a
