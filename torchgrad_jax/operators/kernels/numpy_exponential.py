"""The exponential of matrices of real numbers, and its gradient: their forms on NumPy arrays.

As the operator's JAX function they take the quotient of polynomials that A. Al-Mohy and N. Higham, "A New Scaling and Squaring Algorithm for the
Matrix Exponential" (2009), choose by the norm, and square it. They give the same to rounding: that one's plan has a loop of 48 turns at most, each of
which asks whether there is something to square.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from torchgrad_jax.declaration import numpy_systems
from torchgrad_jax.declaration.numpy_products import multiplying
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.cost import product
from torchgrad_jax.runtime.baseline.surroundings import by_one_thread
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

Array = np.ndarray

# The polynomials' degrees; up to which norm each but the last is for; and the norm up to which the last is, of what has been scaled to that.
_DEGREES = {
    "f": ((3, 5, 7), (0.4258730016922831, 1.880152677804762), 3.925724783138660),
    "d": ((3, 5, 7, 9, 13), (0.01495585217958292, 0.2539398330063230, 0.9504178996162932, 2.097847961257068), 5.371920351148152),
}
_MOST_SQUARINGS = 48
# About so many products of matrices it takes.
_PRODUCTS = 10


def _exponential(a: Array) -> Array:
    flat = a.reshape(-1, *a.shape[-2:])
    if len(flat) == 1:
        degree, squarings = next(_ways(flat))
        return _quotient(a, degree, squarings)
    made = np.empty_like(flat)
    ways = list(_ways(flat))
    for way in set(ways):
        alike = [i for i, other in enumerate(ways) if other == way]
        made[alike] = _quotient(flat[alike], *way)
    return made.reshape(a.shape)


def _ways(flat: Array) -> Iterator[tuple[int, int]]:
    """For each matrix the degree and how often its quotient is squared; -1 for a matrix that has no exponential that is a number."""
    degrees, limits, largest = _DEGREES[flat.dtype.char]
    for norm in np.maximum.reduce(np.add.reduce(np.abs(flat), -2), -1).tolist():
        squarings = max(0, math.floor(math.log2(norm / largest))) if 0 < norm < math.inf else 0 if norm == 0 else -1
        yield degrees[sum([norm >= limit for limit in limits])], squarings if squarings <= _MOST_SQUARINGS else -1


def _quotient(a: Array, degree: int, squarings: int) -> Array:
    if squarings < 0:
        return np.full_like(a, np.nan)
    multiply, number = multiplying(False, False, a.dtype), a.dtype.type
    if squarings:
        a = a / number(2**squarings)
    factors, powers = _factors(degree), [multiply(a, a)]
    while len(powers) < degree // 2:
        powers.append(multiply(powers[-1], powers[0]))
    sums = []
    for first in (0, 1):  # even powers, and a times these
        made = powers[0] * number(factors[first + 2])
        for power, factor in zip(powers[1:], factors[first + 4 :: 2], strict=False):
            made += power * number(factor)
        made.reshape(*made.shape[:-2], -1)[..., :: made.shape[-1] + 1] += number(factors[first])
        sums.append(made)
    even, odd = sums[0], multiply(a, sums[1])
    found = _solved(even - odd, even + odd)
    for _ in range(squarings):
        found = multiply(found, found)
    return found


@lru_cache
def _factors(degree: int) -> list[float]:
    """Of the numerator, of each power; the denominator has them with alternating signs. (N. Higham, "Functions of Matrices", 2008, 10.29)"""
    f = math.factorial
    return [float(f(2 * degree - j) // (f(degree - j) * f(j))) for j in range(degree + 1)]


def _solved(a: Array, b: Array) -> Array:
    solve = numpy_systems.solve
    return solve.function(a, b, True)[0] if solve.result and solve.result(a, b, True) is not None else by_one_thread(np.linalg.solve, a, b)


def _is_square(a: Array) -> bool:
    return a.dtype.char in _DEGREES and a.ndim > 1 and bool(a.size) and a.shape[-1] == a.shape[-2]


def _takes(a: Array, sides: int = 1) -> float:
    *batch, size, _ = a.shape
    size *= sides
    return _PRODUCTS * product(math.prod(batch), size, size, size, a.dtype)


def _exponential_vjp(grad: Array, aval: Aval, a: Array) -> Array:
    size = a.shape[-1]
    both = np.zeros((*a.shape[:-2], 2 * size, 2 * size), a.dtype)
    both[..., :size, :size] = both[..., size:, size:] = a.mT
    both[..., :size, size:] = grad
    return _exponential(both)[..., :size, size:]


matrix_exp = Forms(_exponential, lambda a: a if _is_square(a) else None, True, takes=_takes)
matrix_exp_vjp = Forms(
    _exponential_vjp, lambda grad, aval, a: stand_in(aval.shape, a.dtype) if _is_square(a) and grad.dtype == a.dtype else None,
    takes=lambda grad, a: _takes(a, 2),
)  # fmt: skip
