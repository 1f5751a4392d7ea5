"""What the forms of linear algebra have in common: which matrices they are for, what they take, products, and the outcome of a check."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array, expand_vjp
from torchgrad_jax.declaration.numpy_indexing import RIGHT
from torchgrad_jax.declaration.numpy_products import multiplying
from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.baseline.cost import multiplies_natively, product, weight
from torchgrad_jax.runtime.baseline.linear_algebra import SMALL, eliminating
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

INTS, COUNTS, OUTCOME = np.dtype(np.int32), np.dtype(np.int64), stand_in((2,), np.dtype(np.int64))


def fits(a: Array) -> bool:
    """Whether it is a square matrix of real numbers, or several: C factorizes small ones, and others by blocks and products."""
    square = blocks.by_numbers and a.ndim >= 2 and a.dtype.char in "fd" and bool(a.size) and a.shape[-2] == a.shape[-1]
    return square and (a.shape[-1] <= SMALL or multiplies_natively(a.dtype))


def is_real(*arrays: Array) -> bool:
    """Whether they are not empty, and of the dtypes of the forms."""
    return all([a.dtype.char in "fd" and a.dtype == arrays[0].dtype and a.size for a in arrays])


def sides(a: Array, b: Array) -> tuple[int, ...] | None:
    """The shape of the solutions of systems of square matrices like `a` for matrices of right sides, whose batches broadcast; None where there is no
    form."""
    if not fits(a) or b.dtype != a.dtype or b.ndim < 2 or not b.size or b.shape[-2] != a.shape[-1]:
        return None
    return b.shape if a.shape[:-2] == b.shape[:-2] else (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])


def equations(a: Array, b: Array) -> tuple[Array, Array]:
    """Both as often as their batches, broadcast to each other, have them."""
    if a.shape[:-2] == b.shape[:-2]:
        return a, b
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return np.broadcast_to(a, (*batch, *a.shape[-2:])), np.broadcast_to(b, (*batch, *b.shape[-2:]))


def gathered(made: dict[str, Array], wanted: Sequence[str], avals: Sequence[Aval]) -> Any:
    """The gradients by these names in the shapes of their operands, which were broadcast: one, or a tuple."""
    found = [made[name] for name in wanted]
    found = [x if x.shape == aval.shape else expand_vjp.function(x, aval, x.shape) for x, aval in zip(found, avals, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def takes(a: Array, *changed: Array) -> float:
    """The nanoseconds of factorizing `changed`, or solving for it, by square matrices like `a`."""
    *batch, size, _ = a.shape
    besides, each = eliminating(size)
    found = each * weight(a.dtype) * size * sum([c.size for c in changed])
    return found if size <= SMALL else found + math.prod(batch) * len(changed) * besides


def only(made: dict[str, Any], wanted: Sequence[str]) -> Any:
    """What was made by these names: one, or a tuple."""
    return made[wanted[0]] if len(wanted) == 1 else tuple([made[name] for name in wanted])


def of_avals(avals: Sequence[Aval], dtype: np.dtype) -> Any:
    """What stands for gradients in the shapes of their operands: one, or a tuple."""
    made = [stand_in(aval.shape, dtype) for aval in avals]
    return made[0] if len(made) == 1 else tuple(made)


# ---------------------------------------------------------------------- products


def product_of(a: Array, b: Array, turned: bool = False, other: bool = False) -> Array:
    """The product of matrices, of the transpose of the first if `turned`, of the `other` one's."""
    return multiplying(turned, other, a.dtype)(a, b)


def multiplies(a: Array, count: int) -> float:
    """The nanoseconds of so many products of square matrices like `a`, or of smaller ones."""
    *batch, rows, columns = a.shape
    size = max(rows, columns)
    return count * product(math.prod(batch), size, size, size, a.dtype)


def negative(x: Array) -> Array:
    """In place."""
    return np.negative(x, out=x)


# ---------------------------------------------------------------------- parts of matrices


def flat(a: Array) -> Array:
    """The matrices as a batch of one dimension."""
    return a.reshape(-1, *a.shape[-2:])


def diagonals(a: Array) -> Array:
    """The diagonals, a view."""
    return a.diagonal(0, -2, -1)


@lru_cache
def numbered(size: int) -> Array:
    """The numbers of the rows."""
    return np.arange(size)


@lru_cache
def _below(size: int) -> Array:
    """Where the lower triangle is, the diagonal included."""
    return np.tri(size, dtype=bool)


def symmetric(x: Array, upper: bool) -> Array:
    """The symmetric matrices that have one triangle of `x`."""
    size = x.shape[-1]
    where = _below(size) if size <= SMALL else np.tri(size, dtype=bool)  # of a large one it is not kept
    return np.where(where.T if upper else where, x, x.mT)


# ---------------------------------------------------------------------- checks


def failure(info: Array) -> Array:
    """The check's outcome: of the first of a batch that failed its number and, if it is one of several, its place."""
    numbers = info.reshape(-1)
    if not numbers.any():
        return RIGHT
    place = int((numbers != 0).argmax())
    return np.array([1, int(numbers[place]) + ((place + 1) << 32 if info.ndim else 0)], np.int64)
