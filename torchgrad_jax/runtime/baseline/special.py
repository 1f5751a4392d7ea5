"""The special functions. scipy has them, but importing them takes longer than compiling a program: it waits until a call needs them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.cost import SPECIAL, per_element
from torchgrad_jax.runtime.baseline.rules import Unknown, is_half, rule

# Nanoseconds of the import; up to how many elements Python's own functions are called one by one, whether scipy is there or not: a result must
# not depend on that.
_IMPORT, _FEW = 1e8, 4096
_NAMES = {
    "erf_inv": "erfinv", "igamma": "gammainc", "igammac": "gammaincc", "zeta": "zeta", "regularized_incomplete_beta": "betainc",
}  # fmt: skip


@cache
def _scipy(name: str) -> Callable[..., Any]:
    return getattr(import_module("scipy.special"), name)


def _cost(eqn: Any) -> float:
    return per_element(SPECIAL, eqn) + (0.0 if "scipy.special" in sys.modules else _IMPORT)


def _cost_of_few(eqn: Any) -> float:
    few = eqn.outvars[0].aval.size <= _FEW
    return per_element(2 * SPECIAL, eqn) if few else _cost(eqn)


def _elementwise(eqn: Any, function: Callable[..., Any]) -> Any:
    """A function of float32 and float64 for the dtype of the result."""
    dtype = eqn.outvars[0].aval.dtype
    if dtype.kind not in "fV":
        raise Unknown(eqn.primitive.name)
    if is_half(dtype):
        return lambda *arrays: function(*[a.astype(np.float32) for a in arrays]).astype(dtype)
    return function


@rule(*_NAMES, cost=_cost, elementwise=True)
def _of_scipy(eqn: Any) -> Any:
    name = _NAMES[eqn.primitive.name]
    return _elementwise(eqn, lambda *arrays: _scipy(name)(*arrays))


def _one_by_one(function: Callable[[float], float], name: str) -> Callable[[Any], Any]:
    """Python's function of few elements, scipy's of this name of many."""
    of_each = np.frompyfunc(function, 1, 1)
    return lambda x: _scipy(name)(x) if x.size > _FEW else np.asarray(of_each(x)).astype(x.dtype)


@rule("erf", "erfc", cost=_cost_of_few, elementwise=True)
def _erf(eqn: Any) -> Any:
    name = eqn.primitive.name
    return _elementwise(eqn, _one_by_one(getattr(math, name), name))


def _log_gamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # at a pole
        return math.inf


@rule("lgamma", cost=_cost_of_few, elementwise=True)
def _lgamma(eqn: Any) -> Any:
    log_gamma = _one_by_one(_log_gamma, "gammaln")
    return _elementwise(eqn, lambda x: np.where(np.isinf(x), np.abs(x), log_gamma(x)))


@rule("digamma", cost=_cost, elementwise=True)
def _digamma(eqn: Any) -> Any:
    """NaN at its poles, as XLA has it."""

    def digamma(x: Any) -> Any:
        pole = np.less_equal(x, 0) & np.equal(np.floor(x), x)
        return np.where(pole, np.array(np.nan, x.dtype), _scipy("psi")(x))

    return _elementwise(eqn, digamma)


@rule("bessel_i0e", cost=_cost, elementwise=True)
def _bessel_i0e(eqn: Any) -> Any:
    return _elementwise(eqn, lambda x: np.where(np.isinf(x), np.zeros((), x.dtype), _scipy("i0e")(x)))


@rule("bessel_i1e", cost=_cost, elementwise=True)
def _bessel_i1e(eqn: Any) -> Any:
    return _elementwise(eqn, lambda x: np.where(np.isinf(x), np.copysign(np.zeros((), x.dtype), x), _scipy("i1e")(x)))
