"""Tails of the normal distribution, and its quantiles.

The tails are float64: in float32 the rounding of a square is 30 units of the last place of its exponential, and erfc is 0 from 9.4 on, where
exp(x ** 2) is inf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


# Of the Cephes library's rational functions for quantiles, as in JAX, highest powers first: in the middle, in the tails, and far out there.
_P0 = (
    -59.96335010141079, 98.00107541859997, -56.67628574690703, 13.931260938727968, -1.2391658386738125,
)  # fmt: skip
_Q0 = (
    1.0, 1.9544885833814176, 4.676279128988815, 86.36024213908905, -225.46268785411937, 200.26021238006066, -82.03722561683334, 15.90562251262117,
    -1.1833162112133,
)  # fmt: skip
_P1 = (
    4.0554489230596245, 31.525109459989388, 57.16281922464213, 44.08050738932008, 14.684956192885803, 2.1866330685079025, -0.1402560791713545,
    -0.03504246268278482, -0.0008574567851546854,
)  # fmt: skip
_Q1 = (
    1.0, 15.779988325646675, 45.39076351288792, 41.3172038254672, 15.04253856929075, 2.504649462083094, -0.14218292285478779,
    -0.03808064076915783, -0.0009332594808954574,
)  # fmt: skip
_P2 = (
    3.2377489177694603, 6.915228890689842, 3.9388102529247444, 1.3330346081580755, 0.20148538954917908, 0.012371663481782003,
    0.00030158155350823543, 2.6580697468673755e-06, 6.239745391849833e-09,
)  # fmt: skip
_Q2 = (
    1.0, 6.02427039364742, 3.6798356385616087, 1.3770209948908132, 0.21623699359449663, 0.013420400608854318, 0.00032801446468212774,
    2.8924786474538068e-06, 6.790194080099813e-09,
)  # fmt: skip


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    found: Any = coefficients[0]
    for c in coefficients[1:]:
        found = found * x + c
    return found


def quantile(p: Any) -> Any:
    """JAX's `ndtri`, of numbers in place of arrays of coefficients, which a function that is taken as a whole may not have."""
    upper = p > -math.expm1(-2)
    y = where(upper, 1 - p, p)
    inside = (y > 0) & (p < 1)
    y = where(inside, y, 0.5)
    w = y - 0.5
    ww = w * w
    middle = (w + w * ww * (_polynomial(_P0, ww) / _polynomial(_Q0, ww))) * -math.sqrt(2 * math.pi)
    z = lax.sqrt(-2 * lax.log(y))
    r = 1 / z
    near, far = _polynomial(_P1, r) / _polynomial(_Q1, r), _polynomial(_P2, r) / _polynomial(_Q2, r)
    found = where(y > math.exp(-2), middle, z - lax.log(z) * r - where(z < 8, near, far) * r)
    ends = where(p == 0, -jnp.inf, where(p == 1, jnp.inf, jnp.nan))
    return where(inside, where(upper, found, -found), ends).astype(p.dtype)
