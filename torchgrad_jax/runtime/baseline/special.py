"""The special functions of scipy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.cost import SPECIAL
from torchgrad_jax.runtime.baseline.rules import Unknown, is_half, rule

_NAMES = {
    "erf": "erf", "erfc": "erfc", "erf_inv": "erfinv", "igamma": "gammainc", "igammac": "gammaincc", "zeta": "zeta",
    "regularized_incomplete_beta": "betainc",
}  # fmt: skip


def _elementwise(eqn: Any, function: Callable[..., Any]) -> Any:
    """A function of float32 and float64 for the dtype of the result."""
    dtype = eqn.outvars[0].aval.dtype
    if dtype.kind not in "fV":
        raise Unknown(eqn.primitive.name)
    if is_half(dtype):
        return lambda *arrays: function(*[a.astype(np.float32) for a in arrays]).astype(dtype)
    return function


@rule(*_NAMES, each=SPECIAL, elementwise=True)
def _of_scipy(eqn: Any) -> Any:
    from scipy import special

    return _elementwise(eqn, getattr(special, _NAMES[eqn.primitive.name]))


@rule("lgamma", each=SPECIAL, elementwise=True)
def _lgamma(eqn: Any) -> Any:
    from scipy.special import gammaln

    return _elementwise(eqn, lambda x: np.where(np.isinf(x), np.abs(x), gammaln(x)))


@rule("digamma", each=SPECIAL, elementwise=True)
def _digamma(eqn: Any) -> Any:
    """NaN at its poles, as XLA has it."""
    from scipy.special import psi

    def digamma(x: Any) -> Any:
        pole = np.less_equal(x, 0) & np.equal(np.floor(x), x)
        return np.where(pole, np.array(np.nan, x.dtype), psi(x))

    return _elementwise(eqn, digamma)


@rule("bessel_i0e", each=SPECIAL, elementwise=True)
def _bessel_i0e(eqn: Any) -> Any:
    from scipy.special import i0e

    return _elementwise(eqn, lambda x: np.where(np.isinf(x), np.zeros((), x.dtype), i0e(x)))


@rule("bessel_i1e", each=SPECIAL, elementwise=True)
def _bessel_i1e(eqn: Any) -> Any:
    from scipy.special import i1e

    return _elementwise(eqn, lambda x: np.where(np.isinf(x), np.copysign(np.zeros((), x.dtype), x), i1e(x)))
