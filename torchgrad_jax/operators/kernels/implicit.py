"""Derivatives of samples by the parameters that they were drawn by, where no formula makes samples of fixed noise: implicit reparameterization.

A sample x of the cumulative distribution function F(x; a) moves with a so that F stays what it is: dx/da = -(dF/da) / (dF/dx) (Figurnov, Mohamed and
Mnih, "Implicit Reparameterization Gradients", 2018; Jankowiak and Obermeyer, "Pathwise Derivatives Beyond the Reparameterization Trick", 2018).
"""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration.converting import where, zeros_like
from torchgrad_jax.operators.kernels.loops import while_loop
from torchgrad_jax.operators.kernels.whole import by_c

# Enough for parameters of about 10**8: the number of steps grows as the root of them.
_MOST_STEPS = 20000
_TINY = 1e-300


def _underivable(name: str) -> Any:
    """Makes a function of arrays one that PyTorch differentiates no further: NotImplementedError."""

    def decorate(function: Any) -> Any:
        refusing = jax.custom_jvp(function)

        @refusing.defjvp
        def _refuse(primals: Any, tangents: Any) -> Any:
            raise NotImplementedError(f"the derivative for '{name}' is not implemented.")

        return refusing

    return decorate


@_underivable("_standard_gamma_grad")
def standard_gamma_grad(concentration: Any, sample: Any) -> Any:
    """The derivative of a gamma sample of rate 1 by its concentration. Any shape; computed in float64."""
    return _gamma_sample(concentration, sample)


@by_c("gamma_sample")
def _gamma_sample(concentration: Any, sample: Any) -> Any:
    a, x = jnp.broadcast_arrays(concentration.astype(jnp.float64), sample.astype(jnp.float64))
    return lax.random_gamma_grad(a, x).astype(sample.dtype)  # type: ignore[call-arg] - declared with an argument that it has not


def _lentz(step: Any, a: Any, b: Any, x: Any, c: Any, d: Any, h: Any) -> tuple[Any, Any, Any]:
    """Two steps of Lentz's algorithm for the continued fraction DLMF 8.17.22, that of the incomplete beta function."""
    even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
    odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
    for numerator in (even, odd):
        d = 1 / _not_zero(1 + numerator * d)
        c = _not_zero(1 + numerator / c)
        h = h * c * d
    return c, d, h


def _not_zero(x: Any) -> Any:
    return where(jnp.abs(x) < _TINY, jnp.full_like(x, _TINY), x)


def _fraction(a: Any, b: Any, x: Any, da: float, db: float) -> tuple[Any, Any]:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), and its derivative in the direction (da, db)."""

    def derived(function: Any, *state: Any) -> Any:
        (values, tangents) = state
        directions = (jnp.full_like(a, da), jnp.full_like(b, db))
        return jax.jvp(function, (a, b, *values), (*directions, *tangents))

    def begin(a: Any, b: Any) -> Any:
        d = 1 / _not_zero(1 - (a + b) * x / (a + 1))
        return jnp.ones_like(x), d, d

    def going(state: Any) -> Any:
        step, _, _, moved = state
        return moved & (step < _MOST_STEPS)

    def following(state: Any) -> Any:
        step, values, tangents, _ = state
        new, moving = derived(lambda a, b, c, d, h: _lentz(step, a, b, x, c, d, h), values, tangents)
        scale = 1e-15 * (jnp.abs(new[2]) + jnp.abs(moving[2]))
        moved = (jnp.abs(new[2] - values[2]) > scale) | (jnp.abs(moving[2] - tangents[2]) > 10 * scale)
        return step + 1, new, moving, jnp.any(moved)

    values, tangents = derived(begin, (), ())
    _, values, tangents, _ = while_loop(going, following, (jnp.float64(1), values, tangents, jnp.bool_(True)))
    return values[2], tangents[2]


@_underivable("_dirichlet_grad")
def dirichlet_grad(sample: Any, concentration: Any, total: Any) -> Any:
    """The derivative of a Beta(concentration, total - concentration) sample by the first parameter, over 1 - sample. That is what
    all derivatives of a Dirichlet sample are made of. Any shape; computed in float64."""
    return _beta_sample(sample, concentration, total)


@by_c("beta_sample")
def _beta_sample(sample: Any, concentration: Any, total: Any) -> Any:
    x, a, sum_ = jnp.broadcast_arrays(*(p.astype(jnp.float64) for p in (sample, concentration, total)))
    b = sum_ - a
    lower = x < (a + 1) / (sum_ + 2)
    # The upper tail of Beta(a, b) at x is the lower one of Beta(b, a) at 1 - x; there the fraction converges fast.
    first, second, at = where(lower, a, b), where(lower, b, a), where(lower, x, 1 - x)
    fraction, by_first = _fraction(first, second, at, 1.0, 0.0)
    _, by_second = _fraction(first, second, at, 0.0, 1.0)
    drift = jnp.log(x) + jax.scipy.special.digamma(sum_) - jax.scipy.special.digamma(a)
    below = -(x / a) * (fraction * (drift - 1 / a) + by_first)
    above = (x / b) * (fraction * drift + by_second)
    return where(x == 0, zeros_like(x), where(lower, below, above)).astype(sample.dtype)
