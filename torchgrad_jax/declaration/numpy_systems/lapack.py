"""By LAPACK: eigenvalues, singular values, QR, pseudo-inverses and least squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array
from torchgrad_jax.declaration.numpy_indexing import RIGHT
from torchgrad_jax.declaration.numpy_systems.parts import (
    COUNTS,
    INTS,
    OUTCOME,
    failure,
    fits,
    flat,
    is_real,
    multiplies,
    only,
    product_of,
    symmetric,
    takes,
)
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.cost import LAPACK, MATRIX
from torchgrad_jax.runtime.baseline.linear_algebra import inverse_of_full_rank, substituted
from torchgrad_jax.runtime.baseline.surroundings import by_one_thread
from torchgrad_jax.runtime.native import numpy_lapack
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval


def _by_lapack(element: float) -> Callable[..., float]:
    """The nanoseconds of LAPACK's, which takes so many for each element: see `cost.lapack`."""

    def takes(a: Array, *rest: Array) -> float:
        *batch, rows, columns = a.shape
        return LAPACK + math.prod(batch) * (MATRIX + element * rows * columns * (1 + min(rows, columns) / 300))

    return takes


def _attempted(decompose: Callable[[Array], Sequence[Array]], a: Array) -> Sequence[Array]:
    """What `decompose` gives of matrices, NaN for those that it fails for."""
    try:
        return by_one_thread(decompose, a)
    except np.linalg.LinAlgError:
        if a.ndim == 2:
            return [np.full_like(found, np.nan) for found in decompose(np.zeros_like(a))]
        each = [_attempted(decompose, matrix) for matrix in flat(a)]
        return [np.stack(found).reshape(*a.shape[:-2], *found[0].shape) for found in zip(*each, strict=True)]


def _is_matrix(a: Array, *_: Any, **__: Any) -> bool:
    return a.ndim >= 2 and is_real(a)


def _eigen(a: Array, upper: bool) -> tuple[Array, Array, Array]:
    values, vectors = _attempted(lambda x: numpy_lapack.eigh(x, upper), a)
    failed = values != values
    return values, vectors, failure(failed.any(-1) * INTS.type(max(a.shape[-1] - 1, 1))) if failed.any() else RIGHT


def _eigen_result(a: Array, upper: bool) -> Any:
    return (stand_in(a.shape[:-1], a.dtype), a, OUTCOME) if _is_matrix(a) and a.shape[-1] == a.shape[-2] else None


def _skew(x: Array) -> Array:
    return x - x.mT


def _differences(values: Array) -> Array:
    """How much more each value is than the others, by column; 1 on the diagonal."""
    found = values[..., None, :] - values[..., :, None]
    _put_diagonal(found, values.dtype.type(1))
    return found


def _put_diagonal(x: Array, diagonal: Any) -> None:
    """Write the diagonals of contiguous matrices."""
    size = x.shape[-1]
    x.reshape(*x.shape[:-2], size * size)[..., :: size + 1] = diagonal


def _over(x: Array, differences: Array) -> Array:
    """x / differences, 0 where both vanish: what does not depend on the vectors may have equal values."""
    nothing = (differences == 0) & (x == 0)
    return x / np.where(nothing, x.dtype.type(1), differences)


def _eigen_vjp(grads: Sequence[Any], aval: Aval, values: Array, vectors: Array, upper: bool) -> Array:
    of_values, of_vectors = grads
    if of_vectors is None:
        return product_of(vectors * of_values[..., None, :], vectors, False, True)
    inner = _over(_skew(product_of(vectors, of_vectors, True)) / values.dtype.type(2), _differences(values))
    _put_diagonal(inner, 0 if of_values is None else of_values)
    return product_of(product_of(vectors, inner), vectors, False, True)


def _parts(a: Array, full_matrices: bool = False, compute_uv: bool = True) -> Sequence[Array]:
    """U, S and Vh, or S alone. LAPACK would not come back with infinite numbers."""
    if not np.isfinite(a).all():
        raise np.linalg.LinAlgError
    return numpy_lapack.svd(a, full_matrices) if compute_uv else [numpy_lapack.svdvals(a)]


def _singular(a: Array, full_matrices: bool, compute_uv: bool = True) -> tuple[Array, ...]:
    """The parts and the outcome of the check: which matrix is not finite."""
    parts = _attempted(lambda x: _parts(x, full_matrices, compute_uv), a)
    if np.isfinite(parts[1 if compute_uv else 0]).all():  # of the others all are NaN
        return *parts, RIGHT
    return *parts, failure(np.asarray((~np.isfinite(a)).any((-2, -1)), INTS))


def _singular_result(a: Array, full_matrices: bool) -> Any:
    if not _is_matrix(a):
        return None
    *batch, rows, columns = a.shape
    least = min(rows, columns)
    u, vh = ((rows, rows), (columns, columns)) if full_matrices else ((rows, least), (least, columns))
    return stand_in((*batch, *u), a.dtype), stand_in((*batch, least), a.dtype), stand_in((*batch, *vh), a.dtype), OUTCOME


def _singular_vjp(grads: Sequence[Any], aval: Aval, u: Array, s: Array, vh: Array, full_matrices: bool) -> Array:
    count = s.shape[-1]
    u, vh, gs = u[..., :count], vh[..., :count, :], grads[1]
    gu, gvh = None if grads[0] is None else grads[0][..., :count], None if grads[2] is None else grads[2][..., :count, :]
    if gu is None and gvh is None:
        return product_of(u * gs[..., None, :], vh)
    squares = s * s
    differences, by_row, by_column = _differences(squares), s[..., :, None], s[..., None, :]
    inner, beyond = np.zeros(differences.shape, s.dtype), []
    if gu is not None:
        turned = product_of(u, gu, True)
        inner += _over(_skew(turned), differences) * by_column
        if u.shape[-2] > count:
            beyond.append(product_of(_over(gu - product_of(u, turned), np.broadcast_to(by_column, gu.shape)), vh))
    if gvh is not None:
        turned = product_of(vh, gvh, False, True)
        inner += by_row * _over(_skew(turned), differences)
        if vh.shape[-1] > count:
            beyond.append(product_of(u, _over(gvh - product_of(turned, vh, True), np.broadcast_to(by_row, gvh.shape))))
    _put_diagonal(inner, 0 if gs is None else gs)
    return sum(beyond, product_of(product_of(u, inner), vh))


def _orthogonal(a: Array, mode: Any) -> tuple[Array, Array]:
    q, r = _attempted(lambda x: numpy_lapack.qr(x, mode == "complete"), a)
    return np.zeros(0, a.dtype) if mode == "r" else q, r


def _orthogonal_result(a: Array, mode: str) -> Any:
    if not _is_matrix(a):
        return None
    *batch, rows, columns = a.shape
    inner = rows if mode == "complete" else min(rows, columns)
    q = (0,) if mode == "r" else (*batch, rows, inner)
    return stand_in(q, a.dtype), stand_in((*batch, inner, columns), a.dtype)


def _orthogonal_vjp(grads: Sequence[Any], aval: Aval, q: Array, r: Array, mode: str) -> Array:
    gq, gr = [np.zeros(made.shape, made.dtype) if grad is None else grad for grad, made in zip(grads, (q, r), strict=True)]
    size = q.shape[-1]
    beyond = None
    if r.shape[-1] > size:  # the first columns make Q; the others are Q times their part of R
        beyond = product_of(q, gr[..., size:])
        gq = gq + product_of(q, product_of(r[..., size:], gr[..., size:], False, True))
        r, gr = r[..., :size], gr[..., :size]
    inner = symmetric(product_of(gr, r, False, True) - product_of(q, gq, True), True)
    made = substituted(r, (gq + product_of(q, inner)).mT, False, False).mT
    return made if beyond is None else np.concatenate([made, beyond], -1)


def _orthogonal_vjp_result(grads: Sequence[Any], aval: Aval, q: Array, r: Array, mode: str) -> Any:
    triangle = stand_in((*r.shape[:-1], q.shape[-1]), r.dtype)  # of the first columns
    if mode == "r" or (mode == "complete" and q.shape[-2] > r.shape[-1]) or not is_real(q, r) or not fits(triangle):
        return None
    return stand_in(aval.shape, r.dtype)


eigh = Forms(_eigen, _eigen_result, True, takes=_by_lapack(80.0))
eigvalsh = Forms(
    lambda a, upper: _eigen(a, upper)[::2], lambda a, upper: None if (made := _eigen_result(a, upper)) is None else made[::2], True,
    takes=_by_lapack(80.0),
)  # fmt: skip
eigh_vjp = Forms(
    _eigen_vjp, lambda grads, aval, values, vectors, upper: vectors if is_real(values, vectors) else None, True,
    takes=lambda *given: multiplies(given[-1], 3),
)  # fmt: skip
svd = Forms(_singular, _singular_result, True, takes=_by_lapack(130.0))
svdvals = Forms(
    lambda a: _singular(a, False, False),
    lambda a: (stand_in((*a.shape[:-2], min(a.shape[-2:])), a.dtype), OUTCOME) if _is_matrix(a) else None, True, takes=_by_lapack(60.0),
)  # fmt: skip
svd_vjp = Forms(
    _singular_vjp, lambda grads, aval, u, s, vh, full_matrices: stand_in(aval.shape, s.dtype) if is_real(u, s, vh) else None, True,
    takes=lambda *given: multiplies(given[-1], 4),
)  # fmt: skip
qr = Forms(_orthogonal, _orthogonal_result, takes=_by_lapack(35.0))
qr_vjp = Forms(
    _orthogonal_vjp, _orthogonal_vjp_result, takes=lambda *given: multiplies(given[-1], 3) + takes(given[-1], given[-2]),
)  # fmt: skip


# ---------------------------------------------------------------------- pseudo-inverses and least squares


def _tolerances(a: Array, atol: float | None, rtol: float | None) -> tuple[float, float]:
    """The size below which a singular value counts as zero, and the same for each of the largest one's."""
    default = 0.0 if atol else float(np.finfo(a.dtype).eps) * max(a.shape[-2:])
    return atol or 0.0, default if rtol is None else max(rtol, 0.0)


def _inverted_above(a: Array, atol: float | None, rtol: float | None) -> tuple[Array, Array]:
    """The pseudo-inverse by the singular values above a limit, and how many these are."""
    absolute, relative = _tolerances(a, atol, rtol)
    found = inverse_of_full_rank(a, absolute, relative)
    if found is not None:
        return found, np.full(a.shape[:-2], min(a.shape[-2:]), COUNTS)
    u, s, vh = _attempted(_parts, a)
    above = s > np.maximum(s.dtype.type(absolute), s.dtype.type(relative) * s[..., :1])  # the largest is the first
    reciprocal = np.where(above, s.dtype.type(1) / s, s.dtype.type(0))
    return product_of(vh * reciprocal[..., None], u, True, True), np.add.reduce(above, -1, COUNTS)


def _pseudo_inverse(a: Array, atol: float | None, rtol: float | None, hermitian: bool) -> Array:
    return _inverted_above(a, atol, rtol)[0]


def _pseudo_inverse_vjp(grad: Array, a: Array, p: Array) -> Array:
    if a.shape[-2] <= a.shape[-1]:
        k = product_of(grad, p, True)
        made = product_of(k, p, False, True)
        rest = product_of(product_of(p, p, True), grad.mT - product_of(k, a))
        return made - product_of(p, k).mT - product_of(product_of(a, p), made) + rest
    k = product_of(p, grad, False, True)
    made = product_of(p, k, True)
    rest = product_of(grad.mT - product_of(a, k), product_of(p, p, False, True))
    return rest - product_of(k, p).mT + made - product_of(product_of(made, p), a)


def _least_squares(a: Array, b: Array, rcond: float | None, driver: str) -> tuple[Array, ...]:
    (pinverse, rank), none = _inverted_above(a, None, rcond), np.zeros(0, a.dtype)
    return product_of(pinverse, b), none, rank, none, pinverse


def _least_squares_result(a: Array, b: Array, rcond: float | None, driver: str) -> Any:
    if driver != "gelsy" or not _is_matrix(a) or not is_real(a, b) or b.ndim != a.ndim or a.shape[:-1] != b.shape[:-1]:
        return None
    *batch, rows, columns = a.shape
    none, pinverse = stand_in((0,), a.dtype), stand_in((*batch, columns, rows), a.dtype)
    return stand_in((*batch, columns, b.shape[-1]), a.dtype), none, stand_in(a.shape[:-2], COUNTS), none, pinverse


@cache
def lstsq_grads(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of `wanted` operands of a least squares solution without residuals."""

    def function(grad: Array, avals: Sequence[Aval], a: Array, b: Array, solution: Array, residuals: Array, pinverse: Array, **_: Any) -> Any:
        made = {}
        if "self" in wanted:
            made["self"] = _pseudo_inverse_vjp(product_of(grad, b, False, True), a, pinverse)
        if "B" in wanted:
            made["B"] = product_of(pinverse, grad, True)
        return only(made, wanted)

    def result(grad: Array, avals: Sequence[Aval], a: Array, b: Array, solution: Array, residuals: Array, pinverse: Array, **_: Any) -> Any:
        if residuals.size or not is_real(grad, a, b, pinverse) or grad.shape != solution.shape or a.shape[:-1] != b.shape[:-1]:
            return None
        return only({"self": a, "B": b}, wanted)

    return Forms(function, result, takes=lambda grad, a, *saved: multiplies(a, 9), planned=True)


def _pseudo_inverse_result(a: Array, atol: float | None, rtol: float | None, hermitian: bool) -> Any:
    return stand_in((*a.shape[:-2], *a.shape[:-3:-1]), a.dtype) if not hermitian and _is_matrix(a) else None


# The gradient of `pinv` has none: it is the same products at all sizes, so that one trace is enough.
pinv = Forms(_pseudo_inverse, _pseudo_inverse_result, takes=_by_lapack(35.0))
lstsq = Forms(_least_squares, _least_squares_result, takes=_by_lapack(35.0))
