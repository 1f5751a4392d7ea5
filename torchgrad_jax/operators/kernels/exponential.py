"""The exponential of matrices, and its derivatives: by JAX's functions, and the forms of real numbers on NumPy arrays.

Both take the quotient of polynomials that A. Al-Mohy and N. Higham, "A New Scaling and Squaring Algorithm for the Matrix Exponential" (2009), choose
by the norm, and square it. They give the same to rounding: the plan of the former has a loop of `MOST_SQUARINGS` turns, each of which asks whether
there is something to square.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import numpy_systems
from torchgrad_jax.declaration.converting import where, zeros_like
from torchgrad_jax.declaration.numpy_products import multiplying
from torchgrad_jax.operators.kernels import loops
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
MOST_SQUARINGS = 48
# About so many products of matrices it takes.
_PRODUCTS = 10


def _largest_norm(dtype: np.dtype) -> float:
    """Up to which norm the polynomials serve a matrix of this dtype as it is: for larger ones it is divided by a power of 2."""
    return _DEGREES["d" if dtype.itemsize // (1 + (dtype.kind == "c")) > 4 else "f"][2]


# ---------------------------------------------------------------------- by JAX


def _norm_by_columns(a: Any) -> Any:
    return jnp.max(jnp.sum(jnp.abs(a), -2), -1)


def of_matrix(a: Any) -> Any:
    """The exponential of square matrices; NaN for norms beyond what `MOST_SQUARINGS` squarings reach."""
    if not a.size:
        return a
    wide = a.astype(jnp.float32) if a.dtype.itemsize < 4 else a
    norm, limit = _norm_by_columns(wide), _largest_norm(np.dtype(wide.dtype))
    # JAX divides once less than it takes for a norm within the limit: of norms just below twice that two digits were right.
    times = where(norm > limit, jnp.minimum(jnp.ceil(jnp.log2(norm / limit)), MOST_SQUARINGS + 1), 0.0)[..., None, None]
    found = loops.expm(wide / (2**times).astype(wide.dtype), max_squarings=1)
    found = loops.squared(found, times, MOST_SQUARINGS)
    return where(times > MOST_SQUARINGS, jnp.nan, found).astype(a.dtype)


def directional(a: Any, direction: Any) -> Any:
    """The derivative of the exponential at square matrices in a direction G of their shape: the upper right block of exp [[A, G], [0, A]] (N. Higham,
    "Functions of Matrices", 2008, section 3.1). G, of which it is linear, is not to be larger than A: all of that is divided by its norm."""
    n = a.shape[-1]
    ratio = lax.stop_gradient(_norm_by_columns(direction) / jnp.maximum(_norm_by_columns(a), 1))
    scale = jnp.exp2(jnp.ceil(jnp.log2(where((ratio > 1) & (ratio < jnp.inf), ratio, 1))))[..., None, None].astype(direction.dtype)
    top, bottom = jnp.concatenate([a, direction / scale], -1), jnp.concatenate([zeros_like(a), a], -1)
    return of_matrix(jnp.concatenate([top, bottom], -2))[..., :n, n:] * scale


# ---------------------------------------------------------------------- by NumPy


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


def _norms(a: Array) -> Array:
    return np.maximum.reduce(np.add.reduce(np.abs(a), -2), -1)


def _ways(flat: Array) -> Iterator[tuple[int, int]]:
    """For each matrix the degree and how often its quotient is squared; -1 for a matrix that has no exponential that is a number."""
    degrees, limits, largest = _DEGREES[flat.dtype.char]
    for norm in _norms(flat).tolist():
        squarings = max(0, math.ceil(math.log2(norm / largest))) if 0 < norm < math.inf else 0 if norm == 0 else -1
        yield degrees[sum([norm >= limit for limit in limits])], squarings if squarings <= MOST_SQUARINGS else -1


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
    ratio = _norms(grad) / np.maximum(_norms(a), 1)
    scale = np.exp2(np.ceil(np.log2(np.where((ratio > 1) & (ratio < math.inf), ratio, 1))))[..., None, None].astype(a.dtype)
    both[..., :size, size:] = grad / scale  # as large as the rest of it, by which it is divided
    return _exponential(both)[..., :size, size:] * scale


matrix_exp = Forms(_exponential, lambda a: a if _is_square(a) else None, True, takes=_takes)
matrix_exp_vjp = Forms(
    _exponential_vjp, lambda grad, aval, a: stand_in(aval.shape, a.dtype) if _is_square(a) and grad.dtype == a.dtype else None,
    takes=lambda grad, a: _takes(a, 2),
)  # fmt: skip
