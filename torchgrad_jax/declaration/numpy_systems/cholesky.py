"""Cholesky factors, also of many matrices, and what is made by them: solutions, inverses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array, identity_like
from torchgrad_jax.declaration.numpy_systems.parts import (
    INTS,
    OUTCOME,
    equations,
    failure,
    fits,
    flat,
    gathered,
    multiplies,
    negative,
    of_avals,
    product_of,
    sides,
    symmetric,
    takes,
)
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.linear_algebra import cholesky_factors, substituted
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval


def _factorized(a: Array, upper: bool) -> tuple[Array, Array]:
    """The factors, and of each matrix the order of the leading minor that is not positive, 0 where all are."""
    factors = cholesky_factors(a.swapaxes(-1, -2) if upper else a)
    each = flat(factors)
    info = np.zeros(len(each), INTS)
    first = each[:, 0, 0]
    bad = first != first  # a matrix that has no factor has NaN
    for i in bad.nonzero()[0] if bad.any() else ():
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
    return factors, failure(info)


def _cholesky_vjp(grad: Any, aval: Aval, factor: Array, upper: bool) -> Array:
    """The gradient, symmetric; of a tuple of results it is given a list."""
    grad = grad[0] if isinstance(grad, list) else grad
    lower, grad = (factor.mT, grad.mT) if upper else (factor, grad)
    phi = symmetric(product_of(lower, grad, True), False)
    phi *= phi.dtype.type(0.5)  # this is the lower triangle with half of its diagonal, made symmetric
    left = substituted(lower, phi, True, False)
    return substituted(lower, left.mT, True, False).mT


def _of_factors(grad: Any, aval: Aval, factor: Array, upper: bool) -> Any:
    return stand_in(aval.shape, factor.dtype) if fits(factor) else None


def _takes(a: Array) -> float:
    """The nanoseconds of factors, as those of their rule."""
    *batch, rows, columns = a.shape
    return math.prod(batch) * (300.0 + 6.0 * rows * columns * (1 + columns / 300))


cholesky = Forms(_factorized, lambda a, upper: (a, stand_in(a.shape[:-2], INTS)) if fits(a) else None, True, takes=_takes)
cholesky_checked = Forms(_factorized_checked, lambda a, upper: (a, OUTCOME) if fits(a) else None, True, takes=_takes)
cholesky_vjp = Forms(_cholesky_vjp, _of_factors, takes=lambda grad, factor: multiplies(factor, 1) + takes(factor, factor, factor))


# ---------------------------------------------------------------------- by factors: solutions and inverses


def _solved(b: Array, factor: Array, upper: bool) -> Array:
    """The solutions by one triangle of the factor."""
    factor, b = equations(factor, b)
    return substituted(factor, substituted(factor, b, upper, True), not upper, False)


def _of_factor(common: Array, factor: Array, upper: bool) -> Array:
    """The gradient of the factor of what is inverted, `common` being that of the inverse between two inverses: in both triangles."""
    common = common + common.mT
    return negative(product_of(factor, common) if upper else product_of(common, factor))


def _solve_result(b: Array, factor: Array, upper: bool) -> Array | None:
    shape = sides(factor, b)
    return None if shape is None else stand_in(shape, b.dtype)


@cache
def cholesky_solve_grads(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of `wanted` operands of a solution."""

    def factor_of(saved: Sequence[Array]) -> Array:
        """It is saved alone, or before the solution."""
        return saved[-2 if len(saved) > 1 else -1]

    def function(grad: Array, avals: Sequence[Aval], *saved: Array, upper: bool) -> Any:
        factor, grad = equations(factor_of(saved), grad)
        made = {"self": _solved(grad, factor, upper)}
        if "input2" in wanted:
            made["input2"] = _of_factor(product_of(made["self"], saved[-1], False, True), factor, upper)
        return gathered(made, wanted, avals)

    def result(grad: Array, avals: Sequence[Aval], *saved: Array, upper: bool) -> Any:
        return None if sides(factor_of(saved), grad) is None else of_avals(avals, grad.dtype)

    def takes_of(grad: Array, *saved: Array) -> float:
        factor = factor_of(saved)
        return takes(factor, grad, grad) + ("input2" in wanted) * multiplies(factor, 2)

    return Forms(function, result, takes=takes_of)


def _inverted(factor: Array, upper: bool) -> Array:
    return _solved(identity_like(factor), factor, upper)


def _inverse_vjp(grad: Array, aval: Aval, factor: Array, inverse: Array, upper: bool) -> Array:
    return _of_factor(product_of(product_of(inverse, grad), inverse), factor, upper)


cholesky_solve = Forms(_solved, _solve_result, True, takes=lambda b, factor: takes(factor, b, b))
cholesky_inverse = Forms(_inverted, lambda factor, upper: factor if fits(factor) else None, True, takes=lambda factor: takes(factor, factor, factor))
cholesky_inverse_vjp = Forms(
    _inverse_vjp, lambda grad, aval, factor, inverse, upper: factor if fits(factor) else None, True,
    takes=lambda grad, factor, inverse: multiplies(factor, 3),
)  # fmt: skip
