"""Tails of the normal distribution.

All is float64: in float32 the rounding of a square is 30 units of the last place of its exponential, and erfc is 0 from 9.4 on, where
exp(x ** 2) is inf.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration.converting import where


def _erfcx(x: Any) -> Any:
    """Far out by its asymptotic series, whose terms for x > 10 end below a double's precision."""
    far = x > 10
    near = where(far, 1, x)
    y = where(far, x, 10)
    t = 1 / (y * y)
    series = 1 - 11.5 * t
    for k in range(11, 0, -1):
        series = 1 - (k - 0.5) * t * series
    return where(far, series / (y * math.sqrt(math.pi)), lax.exp(near * near) * lax.erfc(near))


def erfcx(x: Any) -> Any:
    """exp(x ** 2) * erfc(x)."""
    return _erfcx(x.astype(np.float64)).astype(x.dtype)


def log_ndtr(x: Any) -> Any:
    """log(ndtr(x)), of which neither tail is computed as a difference from 1."""
    z = x.astype(np.float64)
    low = jnp.minimum(z, -1)
    tail = lax.log(_erfcx(low * -math.sqrt(0.5)) / 2) - low * low / 2
    return where(z < -1, tail, lax.log1p(lax.erfc(jnp.maximum(z, -1) * math.sqrt(0.5)) / -2)).astype(x.dtype)
