"""Operators of matrices of real numbers: their forms on NumPy arrays, and those of their gradients. See `numpy_forms.py`.

They call what the interpreter calls for factorizations, triangular systems and products; the rest of their JAX functions are a dozen steps, which
take longer. Unlike other forms they give what these give to rounding only, as the interpreter does for factorizations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array
from torchgrad_jax.declaration.numpy_indexing import RIGHT
from torchgrad_jax.declaration.numpy_products import multiplying
from torchgrad_jax.runtime.baseline import Forms, blocks
from torchgrad_jax.runtime.baseline.cost import LAPACK, MATRIX, product, weight
from torchgrad_jax.runtime.baseline.linear_algebra import inverse_of_full_rank
from torchgrad_jax.runtime.baseline.surroundings import by_one_thread
from torchgrad_jax.runtime.native import numpy_lapack
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

# What C factorizes and solves; of larger ones the steps are the least of it.
_MOST = 64
_INTS, _COUNTS, _OUTCOME = np.dtype(np.int32), np.dtype(np.int64), stand_in((2,), np.dtype(np.int64))
_ONE = np.int32(1)
# The logarithms of so many numbers are taken one by one in no more time than by NumPy.
_FEW = 16
# What a multiply-add of C's takes, in nanoseconds.
_EACH = 0.05


def _fits(a: Array) -> bool:
    """Whether it is a square matrix that C factorizes, or several."""
    return blocks.by_numbers and a.ndim >= 2 and a.dtype.char in "fd" and bool(a.size) and a.shape[-2] == a.shape[-1] <= _MOST


def _is_real(*arrays: Array) -> bool:
    """Whether they are not empty, and of the dtypes of the forms."""
    return all([a.dtype.char in "fd" and a.dtype == arrays[0].dtype and a.size for a in arrays])


def _takes(a: Array, *changed: Array) -> float:
    """The nanoseconds of factorizing `changed`, or solving for it, by square matrices like `a`."""
    return _EACH * weight(a.dtype) * a.shape[-1] * sum([c.size for c in changed])


def _product(a: Array, b: Array, turned: bool = False, other: bool = False) -> Array:
    """The product of matrices, of the transpose of the first if `turned`, of the `other` one's."""
    return multiplying(turned, other, a.dtype)(a, b)


def _multiplying(a: Array, count: int) -> float:
    """The nanoseconds of so many products of square matrices like `a`, or of smaller ones."""
    *batch, rows, columns = a.shape
    size = max(rows, columns)
    return count * product(math.prod(batch), size, size, size, a.dtype)


def _flat(a: Array) -> Array:
    return a.reshape(-1, *a.shape[-2:])


def _substituted(a: Array, b: Array, turned: bool, lower: bool, unit: bool = False) -> Array:
    """The solutions of triangular systems; see `lanes.substitute`."""
    x = np.array(b, order="C")
    blocks.substitute(_flat(np.ascontiguousarray(a)), _flat(x), turned, lower, unit)
    return x


@cache
def _below(size: int) -> Array:
    """Where the lower triangle is, the diagonal included."""
    return np.tri(size, dtype=bool)


def _symmetric(x: Array, upper: bool) -> Array:
    """The symmetric matrices that have one triangle of `x`."""
    below = _below(x.shape[-1])
    return np.where(below.T if upper else below, x, x.mT)


def _failure(info: Array) -> Array:
    """The check's outcome: of the first of a batch that failed its number and, if it is one of several, its place."""
    flat = info.reshape(-1)
    if not flat.any():
        return RIGHT
    place = int((flat != 0).argmax())
    return np.array([1, int(flat[place]) + ((place + 1) << 32 if info.ndim else 0)], np.int64)


# ---------------------------------------------------------------------- LU factors


def _factors(a: Array) -> tuple[Array, Array, Array, Array]:
    """Both triangles in one, the pivots from 0, the order of the rows, and the outcome of the check: which element of the diagonal is the first 0."""
    if a.ndim == 2:
        lu, pivots, order, zero = blocks.factors(a)
        return lu, pivots, order, np.array([1, zero], np.int64) if zero else RIGHT
    lu, pivots, order = np.array(a, order="C"), np.empty(a.shape[:-1], _INTS), np.empty(a.shape[:-1], _INTS)
    blocks.factorize(_flat(lu), pivots, order)
    zeros = _diagonal(lu) == 0
    return lu, pivots, order, _failure(np.where(zeros.any(-1), zeros.argmax(-1) + 1, 0)) if zeros.any() else RIGHT


def _diagonal(a: Array) -> Array:
    return a.diagonal(0, -2, -1)


def _solved_by(lu: Array, x: Array) -> None:
    """Write the solutions over right sides that are in the order of the rows."""
    if lu.ndim == 2:
        blocks.solve(lu, x)
        return
    matrices, columns = _flat(lu), x.reshape(-1, lu.shape[-1], x.size * lu.shape[-1] // lu.size)
    blocks.substitute(matrices, columns, False, True, True)
    blocks.substitute(matrices, columns, False, False, False)


def _solved(a: Array, b: Array, left: bool) -> tuple[Array, Array, Array, Array]:
    lu, pivots, order, outcome = _factors(a)
    x = b.take(order, 0) if a.ndim == 2 else np.take_along_axis(b, order if b.ndim < a.ndim else order[..., None], a.ndim - 2)
    _solved_by(lu, x)
    return x, lu, pivots + _ONE, outcome


def _is_equation(a: Array, b: Any) -> bool:
    """Whether there is a vector, or a matrix, of right sides for each matrix."""
    return _fits(a) and b.dtype == a.dtype and bool(math.prod(b.shape)) and a.shape[:-1] in (b.shape, b.shape[:-1])


def _solve_result(a: Array, b: Array, left: bool) -> Any:
    return (b, a, stand_in(a.shape[:-1], _INTS), _OUTCOME) if left and _is_equation(a, b) else None


@cache
def _rows(size: int) -> Array:
    return np.arange(size)


def _inverted(a: Array) -> tuple[Array, Array]:
    lu, _, order, outcome = _factors(a)
    x = np.zeros(a.shape, a.dtype)
    if a.ndim == 2:
        x[_rows(len(a)), order] = 1
    else:
        np.put_along_axis(x, order[..., None], 1, -1)
    _solved_by(lu, x)
    return x, outcome


def _parity(pivots: Array, dtype: np.dtype) -> Array:
    """+1 or -1: the sign of the exchanges."""
    exchanged = np.count_nonzero(pivots != _rows(pivots.shape[-1]), -1)
    return np.asarray(1 - 2 * (exchanged % 2), dtype)


def _determinant(a: Array) -> tuple[Array, Array, Array]:
    lu, pivots, *_ = _factors(a)
    return np.asarray(np.multiply.reduce(_diagonal(lu), -1) * _parity(pivots, a.dtype)), lu, pivots + _ONE


def _sign_and_logarithm(a: Array) -> tuple[Array, Array, Array, Array]:
    lu, pivots, *_ = _factors(a)
    diagonal = _diagonal(lu)
    if a.ndim == 2 and len(a) <= _FEW and math.isfinite(sum(numbers := diagonal.tolist())) and 0 not in numbers:
        negative = np.count_nonzero(pivots != _rows(len(a))) + sum([number < 0 for number in numbers])
        logarithm = sum([math.log(abs(number)) for number in numbers])
        return np.array(-1 if negative % 2 else 1, a.dtype), np.array(logarithm, a.dtype), lu, pivots + _ONE
    sign = np.multiply.reduce(np.sign(diagonal), -1) * _parity(pivots, a.dtype)
    return np.asarray(sign), np.asarray(np.add.reduce(np.log(np.abs(diagonal)), -1)), lu, pivots + _ONE


def _determinant_result(count: int) -> Callable[..., Any]:
    def result(a: Array) -> Any:
        number = stand_in(a.shape[:-2], a.dtype)
        return (*(number,) * count, a, stand_in(a.shape[:-1], _INTS)) if _fits(a) else None

    return result


solve = Forms(_solved, _solve_result, True, takes=lambda a, b: _takes(a, a, b, b))
inverse = Forms(_inverted, lambda a: (a, _OUTCOME) if _fits(a) else None, True, takes=lambda a: _takes(a, a, a, a))
det = Forms(_determinant, _determinant_result(1), True, takes=lambda a: _takes(a, a))
slogdet = Forms(_sign_and_logarithm, _determinant_result(2), True, takes=lambda a: _takes(a, a))


# ---------------------------------------------------------------------- gradients of what is made by LU factors


def _order_of(pivots: Array) -> Array:
    """The order of rows that exchanges of row after row make, from 1."""
    order = list(range(len(pivots)))
    for i, j in enumerate(pivots.tolist()):
        order[i], order[j - 1] = order[j - 1], order[i]
    return np.array(order)


def _adjoint_solved(lu: Array, pivots: Array, b: Array) -> Array:
    """The solutions X of A^T X = b by the factors of A."""
    x = _substituted(lu, _substituted(lu, b, True, True), True, False, True)
    if lu.ndim == 2:
        found = np.empty_like(x)
        found[_order_of(pivots)] = x
        return found
    rows, exchanges = _flat(x), pivots.reshape(-1, pivots.shape[-1]).T - 1
    every = np.arange(len(rows))
    for i in range(len(exchanges) - 1, -1, -1):
        others = exchanges[i]
        rows[every, others], rows[:, i] = rows[:, i].copy(), rows[every, others]
    return x


@cache
def solve_grads(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of `wanted` operands of a solution."""

    def function(grad: Array, avals: Sequence[Aval], a: Array, x: Array, lu: Array, pivots: Array, left: bool) -> Any:
        vector = x.ndim < a.ndim
        of_b = _adjoint_solved(lu, pivots, grad[..., None] if vector else grad)
        made = {"other": of_b[..., 0] if vector else of_b}
        if "A" in wanted:
            made["A"] = _negative(_product(of_b, x[..., None] if vector else x, False, True))
        return made[wanted[0]] if len(wanted) == 1 else tuple([made[name] for name in wanted])

    def result(grad: Array, avals: Sequence[Aval], a: Array, x: Array, lu: Array, pivots: Array, left: bool) -> Any:
        shapes = {"A": a.shape, "other": x.shape}
        if not left or not _is_equation(a, x) or any([aval.shape != shapes[name] for name, aval in zip(wanted, avals, strict=True)]):
            return None
        made = [stand_in(shapes[name], a.dtype) for name in wanted]
        return made[0] if len(made) == 1 else tuple(made)

    return Forms(function, result, takes=lambda grad, a, *saved: _takes(a, grad, grad) + ("A" in wanted) * _multiplying(a, 1))


def _negative(x: Array) -> Array:
    return np.negative(x, out=x)


def _inverse_vjp(grad: Array, aval: Aval, inverse: Array) -> Array:
    return _negative(_product(inverse, _product(grad, inverse, False, True), True))


def _times_inverse_adjoint(lu: Array, pivots: Array, factor: Array) -> Array:
    """The transposes of the inverses, each times its factor."""
    b = np.zeros(lu.shape, lu.dtype)
    b.reshape(*lu.shape[:-2], -1)[..., :: lu.shape[-1] + 1] = factor[..., None]
    return _adjoint_solved(lu, pivots, b)


def _det_vjp(grads: Sequence[Any], aval: Aval, a: Array, result: Array, lu: Array, pivots: Array) -> Array:
    if a.shape[-1] == 1:
        return grads[0][..., None, None]
    if np.count_nonzero(_diagonal(lu)) < pivots.size:
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
        return a if defined == [place] and _fits(a) else None

    return result


inverse_vjp = Forms(
    _inverse_vjp, lambda grad, aval, inverse: grad if _is_real(grad) else None, True, takes=lambda grad, inverse: _multiplying(grad, 2)
)
det_vjp = Forms(_det_vjp, _only(0), takes=lambda grad, a, *saved: _takes(a, a, a))
slogdet_vjp = Forms(_slogdet_vjp, _only(1), takes=lambda grad, a, *saved: _takes(a, a, a))


# ---------------------------------------------------------------------- Cholesky factors, also of many matrices


def _factorized(a: Array, upper: bool) -> tuple[Array, Array]:
    """The factors, and of each matrix the order of the leading minor that is not positive, 0 where all are."""
    factors = np.array(a.swapaxes(-1, -2) if upper else a, order="C")
    each = factors.reshape(-1, *a.shape[-2:])
    blocks.cholesky(each)
    info = np.zeros(len(each), _INTS)
    first = each[:, 0, 0]
    bad = first != first  # C leaves NaN of a matrix that has no factor
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
    return factors, _failure(info)


def _cholesky_vjp(grad: Any, aval: Aval, factor: Array, upper: bool) -> Array:
    """The gradient, symmetric; of a tuple of results it is given a list."""
    grad = grad[0] if isinstance(grad, list) else grad
    lower, grad = (factor.mT, grad.mT) if upper else (factor, grad)
    phi = _symmetric(_product(lower, grad, True), False)
    phi *= phi.dtype.type(0.5)  # this is the lower triangle with half of its diagonal, made symmetric
    left = _substituted(lower, phi, True, False)
    return _substituted(lower, left.mT, True, False).mT


def _of_factors(grad: Any, aval: Aval, factor: Array, upper: bool) -> Any:
    return stand_in(aval.shape, factor.dtype) if _fits(factor) else None


cholesky = Forms(_factorized, lambda a, upper: (a, stand_in(a.shape[:-2], _INTS)) if _fits(a) else None, True, each=5.0)
cholesky_checked = Forms(_factorized_checked, lambda a, upper: (a, _OUTCOME) if _fits(a) else None, True, each=5.0)
cholesky_vjp = Forms(_cholesky_vjp, _of_factors, takes=lambda grad, factor: _multiplying(factor, 1) + _takes(factor, factor, factor))


# ---------------------------------------------------------------------- by LAPACK: eigenvalues, singular values, QR


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
        each = [_attempted(decompose, matrix) for matrix in _flat(a)]
        return [np.stack(found).reshape(*a.shape[:-2], *found[0].shape) for found in zip(*each, strict=True)]


def _is_matrix(a: Array, *_: Any, **__: Any) -> bool:
    return a.ndim >= 2 and _is_real(a)


def _eigen(a: Array, upper: bool) -> tuple[Array, Array, Array]:
    values, vectors = _attempted(lambda x: numpy_lapack.eigh(x, upper), a)
    failed = values != values
    return values, vectors, _failure(failed.any(-1) * _INTS.type(max(a.shape[-1] - 1, 1))) if failed.any() else RIGHT


def _eigen_result(a: Array, upper: bool) -> Any:
    return (stand_in(a.shape[:-1], a.dtype), a, _OUTCOME) if _is_matrix(a) and a.shape[-1] == a.shape[-2] else None


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
        return _product(vectors * of_values[..., None, :], vectors, False, True)
    inner = _over(_skew(_product(vectors, of_vectors, True)) / values.dtype.type(2), _differences(values))
    _put_diagonal(inner, 0 if of_values is None else of_values)
    return _product(_product(vectors, inner), vectors, False, True)


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
    return *parts, _failure(np.asarray((~np.isfinite(a)).any((-2, -1)), _INTS))


def _singular_result(a: Array, full_matrices: bool) -> Any:
    if not _is_matrix(a):
        return None
    *batch, rows, columns = a.shape
    least = min(rows, columns)
    u, vh = ((rows, rows), (columns, columns)) if full_matrices else ((rows, least), (least, columns))
    return stand_in((*batch, *u), a.dtype), stand_in((*batch, least), a.dtype), stand_in((*batch, *vh), a.dtype), _OUTCOME


def _singular_vjp(grads: Sequence[Any], aval: Aval, u: Array, s: Array, vh: Array, full_matrices: bool) -> Array:
    count = s.shape[-1]
    u, vh, gs = u[..., :count], vh[..., :count, :], grads[1]
    gu, gvh = None if grads[0] is None else grads[0][..., :count], None if grads[2] is None else grads[2][..., :count, :]
    if gu is None and gvh is None:
        return _product(u * gs[..., None, :], vh)
    squares = s * s
    differences, by_row, by_column = _differences(squares), s[..., :, None], s[..., None, :]
    inner, beyond = np.zeros(differences.shape, s.dtype), []
    if gu is not None:
        turned = _product(u, gu, True)
        inner += _over(_skew(turned), differences) * by_column
        if u.shape[-2] > count:
            beyond.append(_product(_over(gu - _product(u, turned), np.broadcast_to(by_column, gu.shape)), vh))
    if gvh is not None:
        turned = _product(vh, gvh, False, True)
        inner += by_row * _over(_skew(turned), differences)
        if vh.shape[-1] > count:
            beyond.append(_product(u, _over(gvh - _product(turned, vh, True), np.broadcast_to(by_row, gvh.shape))))
    _put_diagonal(inner, 0 if gs is None else gs)
    return sum(beyond, _product(_product(u, inner), vh))


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
        beyond = _product(q, gr[..., size:])
        gq = gq + _product(q, _product(r[..., size:], gr[..., size:], False, True))
        r, gr = r[..., :size], gr[..., :size]
    inner = _symmetric(_product(gr, r, False, True) - _product(q, gq, True), True)
    made = _substituted(r, (gq + _product(q, inner)).mT, False, False).mT
    return made if beyond is None else np.concatenate([made, beyond], -1)


def _orthogonal_vjp_result(grads: Sequence[Any], aval: Aval, q: Array, r: Array, mode: str) -> Any:
    fits = mode != "r" and _is_real(q, r) and q.shape[-1] <= _MOST and blocks.by_numbers and not (mode == "complete" and q.shape[-2] > r.shape[-1])
    return stand_in(aval.shape, r.dtype) if fits else None


eigh = Forms(_eigen, _eigen_result, True, takes=_by_lapack(80.0))
eigvalsh = Forms(
    lambda a, upper: _eigen(a, upper)[::2], lambda a, upper: None if (made := _eigen_result(a, upper)) is None else made[::2], True,
    takes=_by_lapack(80.0),
)  # fmt: skip
eigh_vjp = Forms(
    _eigen_vjp, lambda grads, aval, values, vectors, upper: vectors if _is_real(values, vectors) else None, True,
    takes=lambda *given: _multiplying(given[-1], 3),
)  # fmt: skip
svd = Forms(_singular, _singular_result, True, takes=_by_lapack(130.0))
svdvals = Forms(
    lambda a: _singular(a, False, False),
    lambda a: (stand_in((*a.shape[:-2], min(a.shape[-2:])), a.dtype), _OUTCOME) if _is_matrix(a) else None, True, takes=_by_lapack(60.0),
)  # fmt: skip
svd_vjp = Forms(
    _singular_vjp, lambda grads, aval, u, s, vh, full_matrices: stand_in(aval.shape, s.dtype) if _is_real(u, s, vh) else None, True,
    takes=lambda *given: _multiplying(given[-1], 4),
)  # fmt: skip
qr = Forms(_orthogonal, _orthogonal_result, takes=_by_lapack(35.0))
qr_vjp = Forms(
    _orthogonal_vjp, _orthogonal_vjp_result, takes=lambda *given: _multiplying(given[-1], 3) + _takes(given[-1], given[-2]),
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
        return found, np.full(a.shape[:-2], min(a.shape[-2:]), _COUNTS)
    u, s, vh = _attempted(_parts, a)
    above = s > np.maximum(s.dtype.type(absolute), s.dtype.type(relative) * s[..., :1])  # the largest is the first
    reciprocal = np.where(above, s.dtype.type(1) / s, s.dtype.type(0))
    return _product(vh * reciprocal[..., None], u, True, True), np.add.reduce(above, -1, _COUNTS)


def _pseudo_inverse(a: Array, atol: float | None, rtol: float | None, hermitian: bool) -> Array:
    return _inverted_above(a, atol, rtol)[0]


def _pseudo_inverse_vjp(grad: Array, a: Array, p: Array) -> Array:
    if a.shape[-2] <= a.shape[-1]:
        k = _product(grad, p, True)
        made = _product(k, p, False, True)
        rest = _product(_product(p, p, True), grad.mT - _product(k, a))
        return made - _product(p, k).mT - _product(_product(a, p), made) + rest
    k = _product(p, grad, False, True)
    made = _product(p, k, True)
    rest = _product(grad.mT - _product(a, k), _product(p, p, False, True))
    return rest - _product(k, p).mT + made - _product(_product(made, p), a)


def _least_squares(a: Array, b: Array, rcond: float | None, driver: str) -> tuple[Array, ...]:
    (pinverse, rank), none = _inverted_above(a, None, rcond), np.zeros(0, a.dtype)
    return _product(pinverse, b), none, rank, none, pinverse


def _least_squares_result(a: Array, b: Array, rcond: float | None, driver: str) -> Any:
    if driver != "gelsy" or not _is_matrix(a) or not _is_real(a, b) or b.ndim != a.ndim or a.shape[:-1] != b.shape[:-1]:
        return None
    *batch, rows, columns = a.shape
    none, pinverse = stand_in((0,), a.dtype), stand_in((*batch, columns, rows), a.dtype)
    return stand_in((*batch, columns, b.shape[-1]), a.dtype), none, stand_in(a.shape[:-2], _COUNTS), none, pinverse


@cache
def lstsq_grads(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of `wanted` operands of a least squares solution without residuals."""

    def function(grad: Array, avals: Sequence[Aval], a: Array, b: Array, solution: Array, residuals: Array, pinverse: Array, **_: Any) -> Any:
        made = {}
        if "self" in wanted:
            made["self"] = _pseudo_inverse_vjp(_product(grad, b, False, True), a, pinverse)
        if "B" in wanted:
            made["B"] = _product(pinverse, grad, True)
        return made[wanted[0]] if len(wanted) == 1 else tuple([made[name] for name in wanted])

    def result(grad: Array, avals: Sequence[Aval], a: Array, b: Array, solution: Array, residuals: Array, pinverse: Array, **_: Any) -> Any:
        if residuals.size or not _is_real(grad, a, b, pinverse) or grad.shape != solution.shape or a.shape[:-1] != b.shape[:-1]:
            return None
        made = [a if name == "self" else b for name in wanted]
        return made[0] if len(made) == 1 else tuple(made)

    return Forms(function, result, takes=lambda grad, a, *saved: _multiplying(a, 9), planned=True)


def _pseudo_inverse_result(a: Array, atol: float | None, rtol: float | None, hermitian: bool) -> Any:
    return stand_in((*a.shape[:-2], *a.shape[:-3:-1]), a.dtype) if not hermitian and _is_matrix(a) else None


# The gradient of `pinv` has none: it is the same products at all sizes, so that one trace is enough.
pinv = Forms(_pseudo_inverse, _pseudo_inverse_result, takes=_by_lapack(35.0))
lstsq = Forms(_least_squares, _least_squares_result, takes=_by_lapack(35.0))
