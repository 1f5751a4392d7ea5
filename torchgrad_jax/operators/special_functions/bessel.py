"""Bessel's functions of orders 0 and 1, and Airy's.

All are computed in double precision: near 0 by what is left of them without their logarithms and poles, far out by what is left without their
oscillation or decay; both are smooth, so they are short series of Chebyshev polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.scipy import special

from torchgrad_jax.declaration.converting import where
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.refusals import kernel
from torchgrad_jax.operators.kernels.whole import by_c
from torchgrad_jax.operators.special_functions import chebyshev
from torchgrad_jax.operators.special_functions.chebyshev import series

# Where the first and the second kind, and where the modified ones change from one series to the other; likewise Airy's.
_OSCILLATES, _DECAYS, _AIRY = 8.0, 2.0, 2.0
_J_NEAR, _Y_NEAR = (chebyshev.J0_NEAR, chebyshev.J1_NEAR), (chebyshev.Y0_NEAR, chebyshev.Y1_NEAR)
_P, _Q = (chebyshev.P0, chebyshev.P1), (chebyshev.Q0, chebyshev.Q1)
_K_NEAR, _K_FAR = (chebyshev.K0_NEAR, chebyshev.K1_NEAR), (chebyshev.K0_FAR, chebyshev.K1_FAR)


def _two_ranges(x: Any, border: float, near: Callable[[Any], Any], far: Callable[[Any], Any]) -> Any:
    """`near` of x up to the border, `far` beyond; neither is given what belongs to the other. NaN is far."""
    inside = x <= border
    return where(inside, near(where(inside, x, border)), far(where(inside, border, x)))


def _first_near(x: Any, order: int) -> Any:
    found = series(_J_NEAR[order], (x / _OSCILLATES) ** 2)
    return x * found if order else found


def _waves(x: Any, order: int) -> tuple[Any, Any]:
    """The first and the second kind, by Hankel's amplitudes."""
    s = (_OSCILLATES / x) ** 2
    p, q = series(_P[order], s), series(_Q[order], s) / x
    turned, scale = x - (order / 2 + 0.25) * math.pi, lax.sqrt(2 / (math.pi * x))
    sine, cosine = lax.sin(turned), lax.cos(turned)
    return scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)


def _first(x: Any, order: int) -> Any:
    found = _two_ranges(abs(x), _OSCILLATES, lambda x: _first_near(x, order), lambda x: _waves(x, order)[0])
    return jnp.copysign(1, x) * found if order else found


def _second(x: Any, order: int) -> Any:
    def near(x: Any) -> Any:
        rest = series(_Y_NEAR[order], (x / _OSCILLATES) ** 2)
        logarithm = lax.log(x) * _first_near(x, order)
        return 2 / math.pi * (logarithm - 1 / x) + x * rest if order else 2 / math.pi * logarithm + rest

    positive = x > 0
    found = _two_ranges(where(positive, x, 1), _OSCILLATES, near, lambda x: _waves(x, order)[1])
    return where(positive, found, where(x == 0, -jnp.inf, jnp.nan))


def _modified_first(x: Any, order: int) -> Any:
    found = special.i1(x) if order else special.i0(x)
    return where(abs(x) == jnp.inf, jnp.nan, found)


def _modified_second(x: Any, order: int, scaled: bool) -> Any:
    def near(x: Any) -> Any:
        rest, logarithm = series(_K_NEAR[order], (x / _DECAYS) ** 2), lax.log(x / 2)
        found = special.i1(x) * logarithm + 1 / x + x * rest if order else rest - special.i0(x) * logarithm
        return found * lax.exp(x) if scaled else found

    def far(x: Any) -> Any:
        found = series(_K_FAR[order], _DECAYS / x) / lax.sqrt(x)
        return found if scaled else found * lax.exp(-x)

    positive = x > 0
    found = _two_ranges(where(positive, x, 1), _DECAYS, near, far)
    return where(positive, found, where(x == 0, jnp.inf, jnp.nan))


def _spherical(x: Any) -> Any:
    """sin(x) / x."""
    flat = (x == 0) | (abs(x) == jnp.inf)
    safe = where(flat, 1, x)
    return where(flat, where(x == 0, 1.0, 0.0), lax.sin(safe) / safe)


def _airy_near(x: Any) -> Any:
    """Ai's power series: the solutions of y'' = x y that begin with 1 and with x."""
    cube, even, odd = x * x * x, jnp.ones_like(x), x
    sums = [even, odd]
    for k in range(1, 15):
        even, odd = even * cube / ((3 * k - 1) * 3 * k), odd * cube / (3 * k * (3 * k + 1))
        sums = [sums[0] + even, sums[1] + odd]
    return sums[0] / (3 ** (2 / 3) * math.gamma(2 / 3)) - sums[1] / (3 ** (1 / 3) * math.gamma(1 / 3))


def _airy(x: Any) -> Any:
    def far(size: Any) -> Any:
        root, s = lax.sqrt(size), (_AIRY / size) ** 1.5
        z, scale = 2 / 3 * size * root, 1 / (math.sqrt(math.pi) * lax.sqrt(root))
        right = scale / 2 * lax.exp(-z) * series(chebyshev.AIRY_RIGHT, s)
        p, q, turned = series(chebyshev.AIRY_LEFT_P, s), series(chebyshev.AIRY_LEFT_Q, s) / z, z + math.pi / 4
        return where(x > 0, right, scale * (p * lax.sin(turned) + q * lax.cos(turned)))

    near = _airy_near(jnp.clip(x, -_AIRY, _AIRY))
    found = _two_ranges(abs(x), _AIRY, lambda _: near, far)
    return where(abs(x) == jnp.inf, jnp.nan, found)


def _declare(name: str, function: Callable[[Any], Any], doc: str, parameter: str = "x") -> None:
    def computed(x: Any) -> Any:
        return function(x.astype(np.float64)).astype(x.dtype)

    computed.__doc__ = doc
    op(f"special_{name}(Tensor {parameter})", promote="float", method=False, toplevel=False, differentiable=False)(
        kernel(f"{name}_cpu", "ch")(by_c(name)(computed))
    )


_declare("airy_ai", _airy, "Airy's function Ai.")
_declare("spherical_bessel_j0", _spherical, "The spherical Bessel function of order 0, sin(x) / x.")
for _order in (0, 1):
    _declare(f"bessel_j{_order}", lambda x, n=_order: _first(x, n), f"The Bessel function of the first kind of order {_order}.", "self")
    _declare(f"bessel_y{_order}", lambda x, n=_order: _second(x, n), f"The Bessel function of the second kind of order {_order}.", "self")
    _declare(f"modified_bessel_i{_order}", lambda x, n=_order: _modified_first(x, n),
             f"The modified Bessel function of the first kind of order {_order}.", "self")  # fmt: skip
    _declare(f"modified_bessel_k{_order}", lambda x, n=_order: _modified_second(x, n, False),
             f"The modified Bessel function of the second kind of order {_order}.", "self")  # fmt: skip
    _declare(f"scaled_modified_bessel_k{_order}", lambda x, n=_order: _modified_second(x, n, True),
             f"exp(x) times the modified Bessel function of the second kind of order {_order}.")  # fmt: skip
