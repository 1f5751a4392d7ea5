"""The special functions. scipy has them, but importing them takes longer than compiling a program: it waits until a call needs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import blocks, lanes
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.cost import DEAR, IMPORT, SPECIAL, importing, of_function, per_element
from torchgrad_jax.runtime.baseline.elementwise import of_numbers
from torchgrad_jax.runtime.baseline.inlining import BY_C, name_of
from torchgrad_jax.runtime.baseline.rules import Unknown, is_half, rule
from torchgrad_jax.runtime.native import special as native
from torchgrad_jax.runtime.native.handlers import special_function

# Up to how many elements Python's own functions are called one by one, whether scipy is there or not: a result must not depend on that.
_FEW = 4096
# An element of C's functions, in nanoseconds.
_BY_C = 30.0
_NAMES = {
    "igamma": "gammainc", "igammac": "gammaincc", "regularized_incomplete_beta": "betainc",
}  # fmt: skip
# Compiling these takes longer than importing scipy does.
_LONG = ("igamma", "igammac", "regularized_incomplete_beta")


@cache
def _scipy(name: str) -> Callable[..., Any]:
    return getattr(import_module("scipy.special"), name)


def _cost(eqn: Any) -> float:
    return per_element(SPECIAL, eqn) + (0.0 if eqn.primitive.name in _LONG else importing())


def _cost_of_few(eqn: Any) -> float:
    few = eqn.outvars[0].aval.size <= _FEW
    return _cost_by_c(eqn) if blocks.by_numbers else per_element(2 * SPECIAL, eqn) if few else _cost(eqn)


def _by_c(which: int, otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """C's function of float32 and float64, or the other where there is none."""

    def function(x: Any) -> Any:
        found = special_function(contiguous(x), which)
        return otherwise(x) if found is None else found

    return function if blocks.by_numbers else otherwise


def _cost_by_c(eqn: Any) -> float:
    return per_element(_BY_C, eqn) if blocks.by_numbers else _cost(eqn)


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


@rule("erfc", cost=_cost_of_few, elementwise=True)
def _erfc(eqn: Any) -> Any:
    return _elementwise(eqn, _by_c(native.ERFC, _one_by_one(math.erfc, "erfc")))


@rule("erf_inv", cost=_cost_by_c, elementwise=True)
def _erf_inv(eqn: Any) -> Any:
    return _elementwise(eqn, _by_c(native.ERF_INVERSE, lambda x: _scipy("erfinv")(x)))


# erf(x) = x p(x^2) to 2e-9 of its value for |x| < 1, and 1 - q(|x|)^8 to 2e-8 beyond that. The coefficients of p and q, highest first: fitted on 300
# points of [0, 1] and of [1, 3.93] with weights that make the largest error smallest (Lawson's iteration).
_NEAR = np.array([7.853840995e-05, -0.0008010187459, 0.005188326984, -0.02685381157, 0.1128358514, -0.3761262582, 1.128379166], np.float32)
_FAR = np.array([0.0001498499838, -0.002469738525, 0.01292589559, -0.01137363301, -0.0614262548, -0.14506065, 1.000834728], np.float32)
_END = np.float32(4)
# From where on the nearest float32 is 1: what the polynomial makes of it may be next to 1, which gelu multiplies with a large number.
_ONE = np.float32(3.919205904006958)
# Up to this many float32 elements Python's function takes no longer; from so many on XLA's is worth compiling.
_FEW_SINGLE, _MANY_SINGLE = 128, 1 << 16
# The same of numbers, where that is compiled: half a ns an element.
_ERF = of_numbers(lanes.ERF)


def _erf_cost(eqn: Any) -> float:
    if eqn.outvars[0].aval.dtype.itemsize > 4:
        return _cost_of_few(eqn)
    if _ERF is not None:
        return of_function(eqn)
    size = eqn.outvars[0].aval.size
    if size >= _MANY_SINGLE:
        return IMPORT  # not for scipy: it is more than what XLA's program takes
    return per_element(2 * SPECIAL, eqn) if size <= _FEW_SINGLE else 15_000.0 + per_element(3 * DEAR, eqn)


@rule("erf", cost=_erf_cost, elementwise=True)
def _erf(eqn: Any) -> Any:
    one_by_one = _by_c(native.ERF, _one_by_one(math.erf, "erf"))
    typed = _ERF
    if typed is not None:
        if eqn.outvars[0].aval.dtype == np.float32:
            return typed
        return _elementwise(eqn, lambda x: typed.function(x) if x.dtype == np.float32 else one_by_one(x))
    return _elementwise(eqn, lambda x: _single_erf(x) if x.dtype == np.float32 and x.size > _FEW_SINGLE else one_by_one(x))


# So many elements at a time stay in the processor's cache from one step to the next.
_BLOCK = 1 << 14


def _single_erf(x: Any) -> Any:
    """Of float32 numbers, to three units of the last place."""
    if x.size <= _BLOCK:
        return _erf_of_block(x)
    flat = x.reshape(-1)
    found = np.empty_like(flat)
    for first in range(0, flat.size, _BLOCK):
        found[first : first + _BLOCK] = _erf_of_block(flat[first : first + _BLOCK])
    return found.reshape(x.shape)


def _erf_of_block(x: Any) -> Any:
    size = np.minimum(np.abs(x), _END)
    near = _polynomial(_NEAR, size * size) * x
    rest = _polynomial(_FAR, size)
    for _ in range(3):
        rest *= rest
    far = np.where(size >= _ONE, np.float32(1), np.float32(1) - rest)
    return np.where(size < 1, near, np.copysign(far, x))


def _polynomial(coefficients: Any, x: Any) -> Any:
    found = np.multiply(x, coefficients[0])
    for c in coefficients[1:-1]:
        found += c
        found *= x
    found += coefficients[-1]
    return found


def _log_gamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # at a pole
        return math.inf


@rule("lgamma", cost=_cost_of_few, elementwise=True)
def _lgamma(eqn: Any) -> Any:
    log_gamma = _one_by_one(_log_gamma, "gammaln")
    return _elementwise(eqn, _by_c(native.LOG_GAMMA, lambda x: np.where(np.isinf(x), np.abs(x), log_gamma(x))))


@rule("digamma", cost=_cost_by_c, elementwise=True)
def _digamma(eqn: Any) -> Any:
    """NaN at its poles, as XLA has it, but for 0."""

    def digamma(x: Any) -> Any:
        pole = np.less_equal(x, 0) & np.equal(np.floor(x), x)
        return np.where(pole, np.array(np.nan, x.dtype), _scipy("psi")(x))

    return _elementwise(eqn, _by_c(native.DIGAMMA, digamma))


@rule("zeta", cost=_cost_by_c, elementwise=True)
def _zeta(eqn: Any) -> Any:
    """Mostly it is asked for digamma's derivative."""

    def zeta(x: Any, q: Any) -> Any:
        if blocks.by_numbers and (x == 2).all() and (q > 0).all():
            return special_function(contiguous(q), native.TRIGAMMA)
        return _scipy("zeta")(x, q)

    return _elementwise(eqn, zeta)


@rule("bessel_i0e", cost=_cost_by_c, elementwise=True)
def _bessel_i0e(eqn: Any) -> Any:
    return _elementwise(eqn, _by_c(native.I0E, lambda x: np.where(np.isinf(x), np.zeros((), x.dtype), _scipy("i0e")(x))))


@rule("bessel_i1e", cost=_cost_by_c, elementwise=True)
def _bessel_i1e(eqn: Any) -> Any:
    return _elementwise(eqn, _by_c(native.I1E, lambda x: np.where(np.isinf(x), np.copysign(np.zeros((), x.dtype), x), _scipy("i1e")(x))))


# ---------------------------------------------------------------------- what operators say in many primitives

_OF_ONE = {
    "digamma": native.DIGAMMA, "trigamma": native.TRIGAMMA, "entr": native.ENTROPY, "erfcx": native.ERFCX, "log_ndtr": native.LOG_NDTR,
    "ndtri": native.NDTRI, "i0": native.I0, "i0e": native.I0E, "i1": native.I1, "i1e": native.I1E, "bessel_j0": native.J0, "bessel_j1": native.J1,
    "bessel_y0": native.Y0, "bessel_y1": native.Y1, "modified_bessel_i0": native.MODIFIED_I0, "modified_bessel_i1": native.MODIFIED_I1,
    "modified_bessel_k0": native.K0, "modified_bessel_k1": native.K1, "scaled_modified_bessel_k0": native.SCALED_K0,
    "scaled_modified_bessel_k1": native.SCALED_K1, "airy_ai": native.AIRY, "spherical_bessel_j0": native.SPHERICAL,
}  # fmt: skip
_OF_TWO = {"zeta": native.ZETA, "igamma": native.IGAMMA, "igammac": native.IGAMMAC, "gamma_sample": native.GAMMA_SAMPLE, **native.POLYNOMIALS}
_OF_THREE = {"beta_sample": native.BETA_SAMPLE}
_DERIVED = {f"polygamma{n}": n for n in range(2, native.MOST_DERIVED + 1)}


class _ByC:
    """A function of arrays of one shape and of numbers, which only C has."""

    __slots__ = ("second", "which")

    def __init__(self, which: int, second: int | None = None) -> None:
        self.which, self.second = which, second

    def __call__(self, x: Any, *others: Any) -> Any:
        given = [x, *others] if self.second is None else [x, np.array(self.second, x.dtype)]
        if len({a.shape for a in given if a.ndim}) > 1:  # what is repeated is so here
            given = list(np.broadcast_arrays(*given))
        first, *rest = [contiguous(a) for a in given]
        return special_function(first, self.which, *rest)


_WHOLE = {
    **{name: _ByC(which) for name, which in (*_OF_ONE.items(), *_OF_TWO.items(), *_OF_THREE.items())},
    **{name: _ByC(native.POLYGAMMA, n) for name, n in _DERIVED.items()},
}  # fmt: skip


@rule(*[BY_C + name for name in _WHOLE], cost=_cost_by_c, elementwise=True)
def _whole(eqn: Any) -> Any:
    return _WHOLE[name_of(eqn).removeprefix(BY_C)]
