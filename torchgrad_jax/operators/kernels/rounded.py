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
