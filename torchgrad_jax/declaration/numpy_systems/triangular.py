"""Triangular systems, also of many matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array
from torchgrad_jax.declaration.numpy_systems.parts import equations, gathered, multiplies, negative, of_avals, product_of, sides, takes
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.linear_algebra import substituted
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval


def _by_triangle(a: Array, b: Array, lower: bool, left: bool, transposed: bool, unit: bool) -> Array:
    """The solutions X of A X = b, X A = b unless `left`, A being the lower or upper triangle of `a`, or the transpose of that."""
    a, b = equations(a, b)
    if left:
        return substituted(a, b, transposed, lower != transposed, unit)
    return substituted(a, b.mT, not transposed, lower == transposed, unit).mT


def _result(a: Array, b: Array, left: bool) -> Array | None:
    """What is like the solutions; None where they have no form."""
    shape = sides(a, b if left else b.mT)
    return None if shape is None else stand_in(shape if left else (*shape[:-2], *b.shape[-2:]), a.dtype)


def _solved(a: Array, b: Array, upper: bool, left: bool, unitriangular: bool) -> Array:
    return _by_triangle(a, b, not upper, left, False, unitriangular)


def _of_triangle(x: Array, upper: bool, unitriangular: bool) -> Array:
    """What of a gradient is that of the triangle: 0 elsewhere."""
    return np.triu(x, 1 if unitriangular else 0) if upper else np.tril(x, -1 if unitriangular else 0)


@cache
def triangular_grads(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of `wanted` operands of a solution. The first that is saved is the triangle, the last, for its own, the solution."""

    def function(grad: Array, avals: Sequence[Aval], a: Array, *saved: Array, upper: bool, left: bool, unitriangular: bool) -> Any:
        made = {"B": _by_triangle(a, grad, not upper, left, True, unitriangular)}
        if "self" in wanted:
            pair = (made["B"], saved[-1]) if left else (saved[-1], made["B"])
            made["self"] = _of_triangle(negative(product_of(*pair, not left, left)), upper, unitriangular)
        return gathered(made, wanted, avals)

    def result(grad: Array, avals: Sequence[Aval], a: Array, *saved: Array, upper: bool, left: bool, unitriangular: bool) -> Any:
        return None if _result(a, grad, left) is None else of_avals(avals, grad.dtype)

    return Forms(function, result, takes=lambda grad, a, *saved: takes(a, grad) + ("self" in wanted) * multiplies(a, 1))


triangular = Forms(_solved, lambda a, b, upper, left, unitriangular: _result(a, b, left), True, takes=lambda a, b: takes(a, b))


# ---------------------------------------------------------------------- the older operator, which returns the triangle, too


def _old_solved(b: Array, a: Array, upper: bool, transpose: bool, unitriangular: bool) -> tuple[Array, Array]:
    return _by_triangle(a, b, not upper, True, transpose, unitriangular), a


def _old_result(b: Array, a: Array, upper: bool, transpose: bool, unitriangular: bool) -> Any:
    solution = _result(a, b, True)
    return None if solution is None else (solution, a)


@cache
def old_triangular_grads(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of `wanted` operands by that of the solution. All three are saved: the sides, the triangle, and the solution."""

    def function(grad: Array, avals: Sequence[Aval], b: Array, a: Array, x: Array, upper: bool, transpose: bool, unitriangular: bool) -> Any:
        made = {"self": _by_triangle(a, grad, not upper, True, not transpose, unitriangular)}
        if "A" in wanted:
            pair = (x, made["self"]) if transpose else (made["self"], x)
            made["A"] = _of_triangle(negative(product_of(*pair, False, True)), upper, unitriangular)
        return gathered(made, wanted, avals)

    def result(grad: Array, avals: Sequence[Aval], *saved: Array, **_: Any) -> Any:
        return None if len(saved) < 3 or _result(saved[1], grad, True) is None else of_avals(avals, grad.dtype)

    return Forms(function, result, takes=lambda grad, b, a, x: takes(a, grad) + ("A" in wanted) * multiplies(a, 1))


old_triangular = Forms(_old_solved, _old_result, takes=lambda b, a: takes(a, b))
