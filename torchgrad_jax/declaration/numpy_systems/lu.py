"""LU factors, and what is made by them: solutions, inverses, determinants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array
from torchgrad_jax.declaration.numpy_indexing import RIGHT
from torchgrad_jax.declaration.numpy_systems.parts import (
    INTS,
    OUTCOME,
    diagonals,
    failure,
    fits,
    flat,
    is_real,
    multiplies,
    negative,
    numbered,
    only,
    product_of,
    takes,
)
from torchgrad_jax.runtime.baseline import Forms, blocks
from torchgrad_jax.runtime.baseline.linear_algebra import SMALL, lu_factors, permutations, substituted
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

_ONE = np.int32(1)
# The logarithms of so many numbers are taken one by one in no more time than by NumPy.
_FEW = 16


def _factors(a: Array) -> tuple[Array, Array, Array, Array]:
    """Both triangles in one, the pivots from 0, the order of the rows, and the outcome of the check: which element of the diagonal is the first 0."""
    if a.ndim == 2 and len(a) <= SMALL:
        lu, pivots, order, zero = blocks.factors(a)
        return lu, pivots, order, np.array([1, zero], np.int64) if zero else RIGHT
    lu, pivots, order = lu_factors(a)
    return lu, pivots, order, failure(_info(lu))


def _info(lu: Array) -> Array:
    """Of each which element of U's diagonal is the first 0, from 1; 0 for none."""
    zeros = diagonals(lu) == 0
    return np.where(zeros.any(-1), zeros.argmax(-1) + 1, 0).astype(INTS) if zeros.any() else np.zeros(lu.shape[:-2], INTS)


def _solved_by(lu: Array, x: Array) -> Array:
    """The solutions of right sides that are in the order of the rows and may be written to."""
    if lu.ndim == 2 and len(lu) <= SMALL:
        blocks.solve(lu, x)
        return x
    matrices, columns = flat(lu), x.reshape(-1, lu.shape[-1], x.size * lu.shape[-1] // lu.size)
    if lu.shape[-1] > SMALL:
        return substituted(matrices, substituted(matrices, columns, False, True, True), False, False).reshape(x.shape)
    blocks.substitute(matrices, columns, False, True, True)
    blocks.substitute(matrices, columns, False, False, False)
    return x


def _in_order(b: Array, order: Array) -> Array:
    """The rows in this order: of right sides, which may be vectors."""
    return b.take(order, 0) if order.ndim == 1 else np.take_along_axis(b, order if b.ndim == order.ndim else order[..., None], order.ndim - 1)


def _adjoint_solved(lu: Array, order: Array, b: Array) -> Array:
    """The solutions X of A^T X = b by the factors of A, whose rows are in this order."""
    x = substituted(lu, substituted(lu, b, True, True), True, False, True)
    found = np.empty_like(x)
    if lu.ndim == 2:
        found[order] = x
    else:
        np.put_along_axis(found, order[..., None], x, -2)
    return found


def _solved(a: Array, b: Array, left: bool) -> tuple[Array, Array, Array, Array]:
    lu, pivots, order, outcome = _factors(a)
    x = _solved_by(lu, _in_order(b, order)) if left else _adjoint_solved(lu, order, b.mT).mT
    return x, lu, pivots + _ONE, outcome


def _is_equation(a: Array, b: Any, left: bool) -> bool:
    """Whether there is a vector, or a matrix, of right sides for each matrix; a matrix, if these are on the left."""
    if not left:
        return b.ndim == a.ndim and _is_equation(a, b.mT, True)
    return fits(a) and b.dtype == a.dtype and bool(math.prod(b.shape)) and a.shape[:-1] in (b.shape, b.shape[:-1])


def _solve_result(a: Array, b: Array, left: bool) -> Any:
    return (b, a, stand_in(a.shape[:-1], INTS), OUTCOME) if _is_equation(a, b, left) else None


def _solved_ex(a: Array, b: Array, left: bool) -> tuple[Array, Array, Array, Array]:
    x, lu, pivots, _ = _solved(a, b, left)
    return x, lu, pivots, _info(lu)


def _solve_ex_result(a: Array, b: Array, left: bool) -> Any:
    made = _solve_result(a, b, left)
    return None if made is None else (*made[:3], stand_in(a.shape[:-2], INTS))


def _inverted(a: Array) -> tuple[Array, Array]:
    lu, _, order, outcome = _factors(a)
    return _inverse_by(lu, order), outcome


def _inverted_ex(a: Array) -> tuple[Array, Array]:
    lu, _, order, _ = _factors(a)
    return _inverse_by(lu, order), _info(lu)


def _inverse_by(lu: Array, order: Array) -> Array:
    x = np.zeros(lu.shape, lu.dtype)
    if lu.ndim == 2:
        x[numbered(len(lu)), order] = 1
    else:
        np.put_along_axis(x, order[..., None], 1, -1)
    return _solved_by(lu, x)


def _parity(pivots: Array, dtype: np.dtype) -> Array:
    """+1 or -1: the sign of the exchanges."""
    exchanged = np.count_nonzero(pivots != numbered(pivots.shape[-1]), -1)
    return np.asarray(1 - 2 * (exchanged % 2), dtype)


def _determinant(a: Array) -> tuple[Array, Array, Array]:
    lu, pivots, *_ = _factors(a)
    return np.asarray(np.multiply.reduce(diagonals(lu), -1) * _parity(pivots, a.dtype)), lu, pivots + _ONE


def _sign_and_logarithm(a: Array) -> tuple[Array, Array, Array, Array]:
    lu, pivots, *_ = _factors(a)
    diagonal = diagonals(lu)
    if a.ndim == 2 and len(a) <= _FEW and math.isfinite(sum(numbers := diagonal.tolist())) and 0 not in numbers:
        negative = np.count_nonzero(pivots != numbered(len(a))) + sum([number < 0 for number in numbers])
        logarithm = sum([math.log(abs(number)) for number in numbers])
        return np.array(-1 if negative % 2 else 1, a.dtype), np.array(logarithm, a.dtype), lu, pivots + _ONE
    sign = np.multiply.reduce(np.sign(diagonal), -1) * _parity(pivots, a.dtype)
    return np.asarray(sign), np.asarray(np.add.reduce(np.log(np.abs(diagonal)), -1)), lu, pivots + _ONE


def _determinant_result(count: int) -> Callable[..., Any]:
    def result(a: Array) -> Any:
        number = stand_in(a.shape[:-2], a.dtype)
        return (*(number,) * count, a, stand_in(a.shape[:-1], INTS)) if fits(a) else None

    return result


solve = Forms(_solved, _solve_result, True, takes=lambda a, b: takes(a, a, b, b))
inverse = Forms(_inverted, lambda a: (a, OUTCOME) if fits(a) else None, True, takes=lambda a: takes(a, a, a, a))
solve_ex = Forms(_solved_ex, _solve_ex_result, True, takes=solve.takes)
inverse_ex = Forms(_inverted_ex, lambda a: (a, stand_in(a.shape[:-2], INTS)) if fits(a) else None, True, takes=inverse.takes)
det = Forms(_determinant, _determinant_result(1), True, takes=lambda a: takes(a, a))
slogdet = Forms(_sign_and_logarithm, _determinant_result(2), True, takes=lambda a: takes(a, a))


# ---------------------------------------------------------------------- gradients of what is made by LU factors


def _order_of(pivots: Array) -> Array:
    """The order of rows that exchanges of row after row make, from 1."""
    return permutations(pivots - _ONE, pivots.shape[-1])


@cache
def solve_grads(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of `wanted` operands of a solution."""

    def function(grad: Array, avals: Sequence[Aval], a: Array, x: Array, lu: Array, pivots: Array, left: bool) -> Any:
        vector, order = x.ndim < a.ndim, _order_of(pivots)
        grad = grad[..., None] if vector else grad
        of_b = _adjoint_solved(lu, order, grad) if left else _solved_by(np.ascontiguousarray(lu), _in_order(grad.mT, order)).mT
        made = {"other": of_b[..., 0] if vector else of_b}
        if "A" in wanted and not left:
            made["A"] = negative(product_of(x, of_b, True))
        elif "A" in wanted:
            made["A"] = negative(product_of(of_b, x[..., None] if vector else x, False, True))
        return only(made, wanted)

    def result(grad: Array, avals: Sequence[Aval], a: Array, x: Array, lu: Array, pivots: Array, left: bool) -> Any:
        shapes = {"A": a.shape, "other": x.shape}
        if not _is_equation(a, x, left) or any([aval.shape != shapes[name] for name, aval in zip(wanted, avals, strict=True)]):
            return None
        return only({name: stand_in(shapes[name], a.dtype) for name in wanted}, wanted)

    return Forms(function, result, takes=lambda grad, a, *saved: takes(a, grad, grad) + ("A" in wanted) * multiplies(a, 1))


def _inverse_vjp(grad: Any, aval: Aval, inverse: Array) -> Array:
    """Of a tuple of results it is given a list."""
    grad = grad[0] if isinstance(grad, list) else grad
    return negative(product_of(inverse, product_of(grad, inverse, False, True), True))


def _times_inverse_adjoint(lu: Array, pivots: Array, factor: Array) -> Array:
    """The transposes of the inverses, each times its factor."""
    b = np.zeros(lu.shape, lu.dtype)
    b.reshape(*lu.shape[:-2], -1)[..., :: lu.shape[-1] + 1] = factor[..., None]
    return _adjoint_solved(lu, _order_of(pivots), b)


def _det_vjp(grads: Sequence[Any], aval: Aval, a: Array, result: Array, lu: Array, pivots: Array) -> Array:
    if a.shape[-1] == 1:
        return grads[0][..., None, None]
    if np.count_nonzero(diagonals(lu)) < pivots.size:
        lu = lu.copy()
        diagonal = lu.reshape(*lu.shape[:-2], -1)[..., :: lu.shape[-1] + 1]
        diagonal[diagonal == 0] = np.finfo(lu.dtype).eps
    return _times_inverse_adjoint(lu, pivots, grads[0] * result)


def _slogdet_vjp(grads: Sequence[Any], aval: Aval, a: Array, sign: Array, lu: Array, pivots: Array) -> Array:
    return _times_inverse_adjoint(lu, pivots, grads[1])


def _only(place: int) -> Callable[..., Any]:
    """The result of a gradient by that of the result at this place, the others being not defined."""

    def result(grads: Sequence[Any], aval: Aval, a: Array, *saved: Array) -> Any:
        defined = [i for i, grad in enumerate(grads) if grad is not None]
        return a if defined == [place] and fits(a) else None

    return result


inverse_vjp = Forms(
    _inverse_vjp, lambda grad, aval, inverse: inverse if is_real(inverse) else None, True, takes=lambda grad, inverse: multiplies(inverse, 2)
)
det_vjp = Forms(_det_vjp, _only(0), takes=lambda grad, a, *saved: takes(a, a, a))
slogdet_vjp = Forms(_slogdet_vjp, _only(1), takes=lambda grad, a, *saved: takes(a, a, a))
