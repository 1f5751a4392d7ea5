"""Powers: of numbers known when a program is made, and of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import promotion
from torchgrad_jax.declaration.converting import where
from torchgrad_jax.operators.kernels import loops


def power_of_integers(x: Any, y: Any) -> Any:
    """x ** y modulo 2 ** bits for y >= 0, whatever y is: jax.numpy looks at six bits of it."""

    def unfinished(state: tuple[Any, Any, Any]) -> Any:
        return jnp.any(state[1] != 0)

    def square(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        base, rest, result = state
        return base * base, lax.shift_right_logical(rest, jnp.ones_like(rest)), where(rest & 1 == 1, result * base, result)

    return loops.while_loop(unfinished, square, (x, y, jnp.ones_like(x)))[2]


def power(x: Any, exponent: Any) -> Any:
    """x ** exponent for a number known when the program is made: small whole powers are products."""
    if exponent == 0:
        return jnp.ones_like(x)
    if exponent == 1:
        return x
    if exponent == 2:
        return x * x
    if exponent == 0.5:
        return lax.sqrt(x)
    if x.dtype.kind in "iu":
        return lax.integer_pow(x, int(promotion.fitting(exponent, np.dtype(x.dtype))))
    if _is_whole(exponent) and abs(exponent) <= 16:
        return lax.integer_pow(x, int(exponent))
    return jnp.power(x, jnp.asarray(exponent, x.dtype))


def _is_whole(exponent: Any) -> bool:
    return isinstance(exponent, int) or (isinstance(exponent, float) and exponent.is_integer())
