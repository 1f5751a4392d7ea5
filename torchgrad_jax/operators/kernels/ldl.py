"""The factorization of symmetric and Hermitian matrices that need not be definite, L D L^T, with the pivots of Bunch & Kaufman ("Some stable
methods for calculating inertia and solving symmetric linear systems", 1977), stored as LAPACK's sytrf and hetrf store it.

Of one matrix; D has blocks of one row, and of two where the pivots are negative. Rows of L are not exchanged by the pivots that come after them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import numpy as jnp

from torchgrad_jax.declaration.converting import where, zeros_like
from torchgrad_jax.operators.kernels import loops

_ALPHA = (1 + 17**0.5) / 8


def _size(x: Any) -> Any:
    """What LAPACK compares elements by."""
    return jnp.abs(x.real) + jnp.abs(x.imag) if jnp.iscomplexobj(x) else jnp.abs(x)


def _exchanged(a: Any, i: Any, j: Any) -> Any:
    """A matrix with two rows exchanged; the others stay where they are."""
    return a.at[jnp.stack([i, j])].set(a[jnp.stack([j, i])])


def _pivot(a: Any, k: Any) -> tuple[Any, Any, Any]:
    """The row to exchange, whether the block has two rows, and whether the column is zero."""
    rows = jnp.arange(a.shape[0])
    own, column = _size(a[k, k]), where(rows > k, _size(a[:, k]), 0)
    below = jnp.argmax(column)
    largest = column[below]
    row = jnp.max(where((rows >= k) & (rows != below), _size(a[below]), 0))
    zero = (jnp.maximum(own, largest) == 0) | jnp.isnan(own)
    stays = zero | (own >= _ALPHA * largest) | (own * row >= _ALPHA * largest * largest)
    alone = stays | (_size(a[below, below]) >= _ALPHA * row)
    return where(stays, k, below), ~alone, zero


def factor(a: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    """(L and D in one matrix, pivots counted from 1, the first zero on D's diagonal counted from 1, or 0) by the lower triangle."""
    n = a.shape[0]
    turned = (lambda x: x.conj()) if hermitian else (lambda x: x)
    lower = jnp.tril(a, -1)
    diagonal = jnp.diagonal(a).real.astype(a.dtype) if hermitian else jnp.diagonal(a)
    rows = jnp.arange(n)

    def step(state: Any) -> Any:
        k, a, made, pivots, info = state
        other, double, zero = _pivot(a, k)
        a = _exchanged(a, k + double, other)
        a = a.at[:, jnp.stack([k + double, other])].set(a[:, jnp.stack([other, k + double])])
        after = jnp.minimum(k + 1, n - 1)
        first, second = a[:, k], a[:, after]
        d, e, f = a[k, k], a[after, k], a[after, after]
        # What the block's columns are over the block.
        determinant = where(double, d * f - e * turned(e), 1)
        one = where(zero, first, first / where(zero | double, 1, d))
        left = where(double, (first * f - second * e) / determinant, one)
        right = where(double, (second * d - first * turned(e)) / determinant, 0)
        rest = rows > k + double
        left, right = where(rest, left, 0), where(rest, right, 0)
        less = jnp.outer(left, turned(first)) + jnp.outer(right, turned(second))
        a = where(zero, a, a - where(rest[:, None] & rest, less, 0))
        column = where(rest, left, made[:, k]).at[k].set(d)
        made = made.at[:, k].set(where(double, column.at[after].set(e), column))
        made = made.at[:, after].set(where(double, where(rest, right, made[:, after]).at[after].set(f), made[:, after]))
        told = where(double, -(other + 1), other + 1).astype(np.int32)
        pivots = pivots.at[k].set(told)
        pivots = pivots.at[after].set(where(double, told, pivots[after]))
        return k + 1 + double, a, made, pivots, where(zero & (info == 0), k + 1, info).astype(np.int32)

    start = (jnp.int64(0), lower + turned(lower.T) + jnp.diag(diagonal), zeros_like(a), jnp.zeros(n, np.int32), jnp.int32(0))
    _, _, made, pivots, info = loops.while_loop(lambda state: state[0] < n, step, start)
    return made, pivots, info


def solve(made: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    """X with A X = b, by the factorization of A."""
    n = made.shape[0]
    turned = (lambda x: x.conj()) if hermitian else (lambda x: x)
    rows = jnp.arange(n)

    def block(k: Any) -> tuple[Any, Any, Any, Any]:
        """Whether a block of two begins here, the row after, and the columns of L below the block."""
        double = pivots[k] < 0
        after = jnp.minimum(k + 1, n - 1)
        rest = rows > k + double
        return double, after, where(rest, made[:, k], 0), where(rest & double, made[:, after], 0)

    def down(state: Any) -> Any:
        k, x = state
        double, after, left, right = block(k)
        x = _exchanged(x, k + double, jnp.abs(pivots[k]) - 1)
        x = x - jnp.outer(left, x[k]) - jnp.outer(right, x[after])
        d, e, f = made[k, k], made[after, k], made[after, after]
        determinant = where(double, d * f - e * turned(e), 1)
        first = where(double, (f * x[k] - turned(e) * x[after]) / determinant, x[k] / d)
        second = where(double, (d * x[after] - e * x[k]) / determinant, x[after])
        return k + 1 + double, x.at[after].set(second).at[k].set(first)

    def up(state: Any) -> Any:
        k, x = state
        k = k - (pivots[k] < 0)
        double, after, left, right = block(k)
        first, second = x[k] - turned(left) @ x, x[after] - turned(right) @ x
        x = x.at[after].set(where(double, second, x[after])).at[k].set(first)
        return k - 1, _exchanged(x, k + double, jnp.abs(pivots[k]) - 1)

    if not n:
        return b
    _, x = loops.while_loop(lambda state: state[0] < n, down, (jnp.int64(0), b))
    return loops.while_loop(lambda state: state[0] >= 0, up, (jnp.int64(n - 1), x))[1]
