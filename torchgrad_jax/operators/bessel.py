"""The Bessel functions of the first kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.refusals import kernel

# From here on the asymptotic series is exact to a double's precision; below, the trapezoidal rule of so many points on Bessel's integral.
_FAR, _POINTS, _TERMS = 25.0, 64, 24


def _near(x: Any, order: int) -> Any:
    """Bessel's integral: the mean of cos(x sin t), or of sin t sin(x sin t), over a quarter of the circle."""
    total = jnp.zeros_like(x)
    for k in range(_POINTS // 4):
        s = math.sin(2 * math.pi * (k + 0.5) / _POINTS)
        total += lax.cos(x * s) if order == 0 else s * lax.sin(x * s)
    return total / (_POINTS // 4)


def _far(x: Any, order: int) -> Any:
    """Hankel's asymptotic series."""
    even, odd, term = jnp.ones_like(x), jnp.zeros_like(x), jnp.ones_like(x)
    for k in range(1, _TERMS):
        term = term * ((4 * order * order - (2 * k - 1) ** 2) / (8 * k)) / x
        if k % 2:
            odd += term if k % 4 == 1 else -term
        else:
            even += term if k % 4 == 0 else -term
    turned = x - (order / 2 + 0.25) * math.pi
    return lax.sqrt(2 / (math.pi * x)) * (even * lax.cos(turned) - odd * lax.sin(turned))


def _bessel(order: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        size = abs(x.astype(np.float64))
        far = size > _FAR
        found = jnp.where(far, _far(jnp.where(far, size, _FAR), order), _near(jnp.where(far, 0, size), order))
        return (jnp.copysign(1, x) * found if order else found).astype(x.dtype)

    return function


for _order in (0, 1):
    _function = kernel(f"bessel_j{_order}_cpu", "ch")(_bessel(_order))
    _function.__doc__ = f"The Bessel function of the first kind of order {_order}."
    op(f"special_bessel_j{_order}(Tensor self)", promote="float", method=False, toplevel=False, differentiable=False)(_function)
