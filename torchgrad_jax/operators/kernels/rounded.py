"""Arithmetic of float32 with fused multiply-adds, done in float64, where a product is exact, and rounded: of arrays, NumPy's or JAX's."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import numpy as jnp


def single(x: Any) -> Any:
    """x rounded to float32, as one."""
    return x.astype(np.float32)


def wide(x: Any) -> Any:
    """x in float64."""
    return x.astype(np.float64)


def mad(a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded to float32, of float32 values held in float64."""
    t = a * b
    t += c
    return t.astype(np.float32).astype(np.float64)


def mul(a: Any, b: Any) -> Any:
    """a * b, likewise."""
    return (a * b).astype(np.float32).astype(np.float64)


def root(x: Any) -> Any:
    """The square root of float32."""
    return np.sqrt(x) if isinstance(x, np.ndarray) else jnp.sqrt(x)


def pick(which: Any, a: Any, b: Any) -> Any:
    """a where `which`, else b."""
    return np.where(which, a, b) if isinstance(which, np.ndarray) else jnp.where(which, a, b)


def floor(x: Any) -> Any:
    """The integer below x >= 0."""
    return x.astype(np.int32)


def mantissa(x: Any) -> Any:
    """Of normal float32 x > 0 what is in [0.5, 1), in float64; x is this by 2 ** `exponent(x)`."""
    return (np.frexp(x) if isinstance(x, np.ndarray) else jnp.frexp(x))[0].astype(np.float64)


def exponent(x: Any) -> Any:
    """See `mantissa`."""
    return (np.frexp(x) if isinstance(x, np.ndarray) else jnp.frexp(x))[1]


# ---------------------------------------------------------------------- exactly, of NumPy's arrays


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a + b, and by how much it is rounded."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def round_odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b rounded to odd, so that one further rounding is the rounding of the exact sum."""
    s, err = two_sum(a, b)
    even = (s.view(np.int64) & 1) == 0
    toward = np.where(err > 0, np.inf, -np.inf)
    return np.where((err != 0) & even, np.nextafter(s, toward), s)


_PIECE = 1 << 15  # elements whose float64 stay in a processor's cache: all at once, 50 million take 4 s in place of 0.2


def fuse(a: np.ndarray, b: float, c: float) -> None:
    """Write a * b + c over float32 numbers, rounded once."""
    for start in range(0, len(a), _PIECE):
        piece = a[start : start + _PIECE]
        product = piece.astype(np.float64) * float(b)  # exact
        s = product + float(c)
        # The sum is rounded twice; that shows only where the first rounding ends halfway between two float32.
        halfway = (s.view(np.int64) & 0x1FFFFFFF) == 0x10000000
        if halfway.any():
            s[halfway] = round_odd_sum(product[halfway], np.asarray(c, np.float64))
        piece[...] = s
