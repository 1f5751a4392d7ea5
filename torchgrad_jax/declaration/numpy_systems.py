"""Operators of one small matrix of real numbers: their forms on NumPy arrays. See `numpy_forms.py`.

They call what the interpreter calls for LU factors and triangular systems; the rest of their JAX functions are a dozen steps, which take longer.
Unlike other forms they give what these give to rounding only, as the interpreter does for factorizations.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array
from torchgrad_jax.declaration.numpy_indexing import RIGHT
from torchgrad_jax.runtime.baseline import Forms, blocks
from torchgrad_jax.runtime.operation import stand_in

# Of larger ones the steps are the least of it, and what they take is estimated.
_MOST = 16
_INTS, _OUTCOME = np.dtype(np.int32), stand_in((2,), np.dtype(np.int64))


def _fits(a: Array) -> bool:
    return blocks.by_numbers and a.ndim == 2 and a.dtype.char in "fd" and 0 < a.shape[0] == a.shape[1] <= _MOST


def _outcome(zero: int) -> Array:
    return np.array([1, zero], np.int64) if zero else RIGHT


def _solved(a: Array, b: Array, left: bool) -> tuple[Array, Array, Array, Array]:
    lu, pivots, order, zero = blocks.factors(a)
    x = b.take(order, 0)
    blocks.solve(lu, x)
    return x, lu, pivots + _ONE, _outcome(zero)


def _solve_result(a: Array, b: Array, left: bool) -> Any:
    fits = left and _fits(a) and b.dtype == a.dtype and b.ndim in (1, 2) and b.shape[0] == a.shape[0] and b.size
    return (b, a, stand_in(a.shape[:1], _INTS), _OUTCOME) if fits else None


@cache
def _rows(size: int) -> Array:
    return np.arange(size)


def _inverted(a: Array) -> tuple[Array, Array]:
    lu, _, order, zero = blocks.factors(a)
    x = np.zeros(a.shape, a.dtype)
    x[_rows(len(a)), order] = 1
    blocks.solve(lu, x)
    return x, _outcome(zero)


def _sign_and_logarithm(a: Array) -> tuple[Array, Array, Array, Array]:
    lu, pivots, _, zero = blocks.factors(a)
    numbers, exchanged = lu.diagonal().tolist(), np.count_nonzero(pivots != _rows(len(a)))
    if zero or not math.isfinite(sum(numbers)):
        diagonal = lu.diagonal()
        sign = np.asarray(np.prod(np.sign(diagonal)) * a.dtype.type(-1 if exchanged % 2 else 1))
        return sign, np.add.reduce(np.log(np.abs(diagonal))), lu, pivots + _ONE
    negative = exchanged + sum([number < 0 for number in numbers])
    logarithm = sum([math.log(abs(number)) for number in numbers])
    return np.array(-1 if negative % 2 else 1, a.dtype), np.array(logarithm, a.dtype), lu, pivots + _ONE


def _slogdet_result(a: Array) -> Any:
    number = stand_in((), a.dtype)
    return (number, number, a, stand_in(a.shape[:1], _INTS)) if _fits(a) else None


_ONE = np.int32(1)
solve = Forms(_solved, _solve_result, True)
inverse = Forms(_inverted, lambda a: (a, _OUTCOME) if _fits(a) else None, True)
slogdet = Forms(_sign_and_logarithm, _slogdet_result, True)
