"""Operators of one small matrix of real numbers: their forms on NumPy arrays. See `numpy_forms.py`.

They call what the interpreter calls for LU factors and triangular systems; the rest of their JAX functions are a dozen steps, which take longer.
Unlike other forms they give what these give to rounding only, as the interpreter does for factorizations.
"""

from __future__ import annotations

import math
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


def _factors(a: Array) -> tuple[Array, Array, Array]:
    """Both triangles in one matrix, the pivots from 0, and the order of the rows."""
    n = len(a)
    lu, pivots, order = np.array(a, order="C"), np.empty(n, _INTS), np.empty(n, _INTS)
    blocks.factorize(lu[None], pivots, order)
    return lu, pivots, order


def _outcome(lu: Array) -> Array:
    diagonal = lu.diagonal()
    if diagonal.all():
        return RIGHT
    return np.array([1, np.flatnonzero(diagonal == 0)[0] + 1], np.int64)


def _substituted(lu: Array, x: Array) -> None:
    """Write the solution of L U X = x over the right side."""
    blocks.substitute(lu[None], x[None], False, True, True)
    blocks.substitute(lu[None], x[None], False, False, False)


def _solved(a: Array, b: Array, left: bool) -> tuple[Array, Array, Array, Array]:
    lu, pivots, order = _factors(a)
    x = b[order]
    _substituted(lu, x[:, None] if b.ndim == 1 else x)
    return x, lu, pivots + _ONE, _outcome(lu)


def _solve_result(a: Array, b: Array, left: bool) -> Any:
    fits = left and _fits(a) and b.dtype == a.dtype and b.ndim in (1, 2) and b.shape[0] == a.shape[0] and b.size
    return (b, a, stand_in(a.shape[:1], _INTS), _OUTCOME) if fits else None


def _inverted(a: Array) -> tuple[Array, Array]:
    lu, _, order = _factors(a)
    x = np.zeros(a.shape, a.dtype)
    x[np.arange(len(a)), order] = 1
    _substituted(lu, x)
    return x, _outcome(lu)


def _sign_and_logarithm(a: Array) -> tuple[Array, Array, Array, Array]:
    lu, pivots, _ = _factors(a)
    numbers = lu.diagonal().tolist()
    negative = sum([number < 0 for number in numbers]) + sum([at != i for i, at in enumerate(pivots.tolist())])
    if all(map(math.isfinite, numbers)) and 0 not in numbers:
        sign = np.array(-1 if negative % 2 else 1, a.dtype)
    else:
        sign = np.prod(np.sign(lu.diagonal())) * a.dtype.type(-1 if (pivots != np.arange(len(a))).sum() % 2 else 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sign), np.log(np.abs(lu.diagonal())).sum(dtype=a.dtype), lu, pivots + _ONE


def _slogdet_result(a: Array) -> Any:
    number = stand_in((), a.dtype)
    return (number, number, a, stand_in(a.shape[:1], _INTS)) if _fits(a) else None


_ONE = np.int32(1)
solve = Forms(_solved, _solve_result, True)
inverse = Forms(_inverted, lambda a: (a, _OUTCOME) if _fits(a) else None, True)
slogdet = Forms(_sign_and_logarithm, _slogdet_result, True)
