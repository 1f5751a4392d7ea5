"""Operators of small matrices of real numbers: their forms on NumPy arrays. See `numpy_forms.py`.

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


# ---------------------------------------------------------------------- Cholesky factors, also of many matrices

# What C factorizes; larger ones are LAPACK's.
_MOST_POSITIVE = 64


def _factorized(a: Array, upper: bool) -> tuple[Array, Array]:
    """The factors, and of each matrix the order of the leading minor that is not positive, 0 where all are."""
    factors = np.array(a.swapaxes(-1, -2) if upper else a, order="C")
    each = factors.reshape(-1, *a.shape[-2:])
    blocks.cholesky(each)
    info = np.zeros(len(each), _INTS)
    first = each[:, 0, 0]
    for i in np.flatnonzero(first != first):  # C leaves NaN of a matrix that has no factor
        matrix = a.reshape(each.shape)[i]
        each[i], info[i] = _eliminated(np.tril(matrix.T if upper else matrix))
    return factors.swapaxes(-1, -2) if upper else factors, info.reshape(a.shape[:-2])


def _eliminated(lower: Array) -> tuple[Array, int]:
    """What LAPACK leaves of a matrix that has no factor, and the order of the first leading minor that is not positive; by elimination, as the
    operator's JAX function finds it."""
    full, size = lower + np.tril(lower, -1).T, len(lower)
    rest, columns, pivots = full, np.zeros_like(full), np.zeros(size, full.dtype)
    for k in range(size):
        pivots[k] = rest[k, k]
        root = np.sqrt(rest[k, k]) if rest[k, k] > 0 else full.dtype.type(1)
        column = np.where(np.arange(size) > k, rest[:, k], full.dtype.type(0)) / root
        rest = rest - np.outer(column, column)
        columns[:, k] = column
        columns[k, k] = root
    bad = ~(pivots > 0)
    order = int(bad.argmax() if bad.any() else pivots.argmin())
    left = np.tril(full)
    left[order, order] = pivots[order]
    left[:, :order] = columns[:, :order]
    return left, order + 1


def _factorized_checked(a: Array, upper: bool) -> tuple[Array, Array]:
    factors, info = _factorized(a, upper)
    if not info.any():
        return factors, RIGHT
    place = int((info.reshape(-1) != 0).argmax())
    return factors, np.array([1, int(info.reshape(-1)[place]) + ((place + 1) << 32 if info.ndim else 0)], np.int64)


def _has_factors(a: Array) -> bool:
    return blocks.by_numbers and a.ndim >= 2 and a.dtype.char in "fd" and bool(a.size) and a.shape[-1] == a.shape[-2] <= _MOST_POSITIVE


_ONE = np.int32(1)
cholesky = Forms(_factorized, lambda a, upper: (a, stand_in(a.shape[:-2], _INTS)) if _has_factors(a) else None, True, each=5.0)
cholesky_checked = Forms(_factorized_checked, lambda a, upper: (a, _OUTCOME) if _has_factors(a) else None, True, each=5.0)
solve = Forms(_solved, _solve_result, True)
inverse = Forms(_inverted, lambda a: (a, _OUTCOME) if _fits(a) else None, True)
slogdet = Forms(_sign_and_logarithm, _slogdet_result, True)
