"""The derivatives of the logarithm of the gamma function, and the zeta function that they are made of."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from torchgrad_jax.declaration.converting import where, zeros_like
from torchgrad_jax.declaration.refusals import kernel
from torchgrad_jax.operators.kernels.whole import by_c
from torchgrad_jax.runtime.native.special import MOST_DERIVED


@jax.custom_jvp
def _digamma(x: Any) -> Any:
    return where(x == 0, jnp.copysign(jnp.asarray(jnp.inf, x.dtype), -x), lax.digamma(where(x == 0, jnp.ones_like(x), x)))


# JAX's own derivative is not exact for negative numbers.
_digamma.defjvps(lambda tangent, _, x: tangent * polygamma(x, 1))
digamma = kernel("digamma", "c")(by_c("digamma", lambda given, at: given[0] * polygamma(at[0], 1))(_digamma))


def polygamma(x: Any, n: int) -> Any:
    """The `n`-th derivative of digamma."""
    if n == 0:
        return digamma(x)
    if n == 1:
        return _trigamma(x)
    return by_c(f"polygamma{n}")(partial(_derivative, n=n))(x) if n <= MOST_DERIVED else _derivative(x, n)


def _derivative(x: Any, n: int) -> Any:
    sign = 1.0 if n % 2 else -1.0
    below = (x < 0) & (x != jnp.floor(x))
    right = sign * math.factorial(n) * hurwitz_zeta(jnp.full_like(x, n + 1), where(below, 1 - x, x))
    return where(below, -sign * right - _cotangent(x, n), right).astype(x.dtype)


def _cotangent(x: Any, n: int) -> Any:
    """The `n`-th derivative of pi cot(pi x), for the reflection formula: a polynomial of the cotangent, each from the last by c' = -(1 + c^2)."""
    of_c = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(n):
        of_c = -of_c.deriv() * np.polynomial.Polynomial([1.0, 0.0, 1.0])
    angle = jnp.asarray(math.pi, x.dtype) * (x - jnp.round(x))
    c, found = jnp.cos(angle) / jnp.sin(angle), zeros_like(x)
    for factor in reversed(of_c.coef):
        found = found * c + float(factor)
    return math.pi ** (n + 1) * found


@by_c("trigamma")
def _trigamma(x: Any) -> Any:
    """The derivative of digamma: below 1/2 by its reflection at 1/2."""
    below, infinite = x < 0.5, x == jnp.inf
    right = where(infinite, 1, where(below, 1 - x, x))
    right = where(infinite, 0, special.zeta(jnp.full_like(x, 2), right))
    sine = jnp.sin(jnp.asarray(math.pi, x.dtype) * (x - jnp.round(x)))
    return where(below, math.pi**2 / (sine * sine) - right, right).astype(x.dtype)


@by_c("zeta")
def hurwitz_zeta(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function, infinite at its poles; below 1 it has no value, nor, as in PyTorch, at an infinite q."""
    pole, endless = (q <= 0) & (q == jnp.floor(q)), (x == jnp.inf) & (abs(q) <= 1)
    found = special.zeta(where(endless, 2, x), where(pole, 1, q))
    found = where(endless, where(q == 1, 1, jnp.inf), found)
    none = (x < 1) | ((q == jnp.inf) & (x != 1))
    return where(none, jnp.nan, where(pole | (x == 1), jnp.inf, found)).astype(x.dtype)
