"""Factorizations and triangular systems, by LAPACK. What fails is NaN, and no error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import blocks, lanes
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.cost import lapack, multiplies_natively, weight
from torchgrad_jax.runtime.baseline.products import of_matrices
from torchgrad_jax.runtime.baseline.rules import Unknown, rule
from torchgrad_jax.runtime.native import numpy_lapack

Solver = Callable[..., Any]


def _avals(eqn: Any) -> list[tuple[tuple[int, ...], np.dtype]]:
    return [(v.aval.shape, v.aval.dtype) for v in eqn.outvars]


def _is_real(eqn: Any) -> bool:
    """Whether the first operand is of real numbers, and not empty."""
    aval = eqn.invars[0].aval
    return aval.dtype.char in "fd" and 0 not in aval.shape


def _safe(solve: Solver, outs: Sequence[tuple[tuple[int, ...], np.dtype]]) -> Callable[[Any], list[Any]]:
    """`solve` of a batch of matrices; if it fails, matrix by matrix, with NaN for those that fail. `outs`: shapes and dtypes of the results."""

    failure = [complex(np.nan, np.nan) if dtype.kind == "c" else np.nan for _, dtype in outs]

    def alone(x: Any) -> Sequence[Any]:
        try:
            return solve(x)
        except np.linalg.LinAlgError:
            return failure

    def run(x: Any) -> list[Any]:
        try:
            return [r.astype(dtype, copy=False) for r, (_, dtype) in zip(solve(x), outs, strict=True)]
        except np.linalg.LinAlgError:
            results = [np.empty(shape, dtype) for shape, dtype in outs]
        for i in np.ndindex(x.shape[:-2]):
            for result, one in zip(results, alone(x[i]), strict=True):
                result[i] = one
        return results

    return run


@rule("cholesky", cost=partial(lapack, element=6.0, matrix=300.0))
def _cholesky(eqn: Any) -> Any:
    """Reads the lower triangle."""
    by_matrix = _safe(lambda x: [np.linalg.cholesky(x)], _avals(eqn))
    shape, dtype = _avals(eqn)[0]
    if blocks.by_numbers and dtype.char in "fd" and shape[-1] <= SMALL:
        return _small_factors
    if multiplies_natively(dtype) and 0 not in shape:
        return cholesky_factors

    def run(x: Any) -> Any:
        try:
            return np.linalg.cholesky(x) if x.size else x
        except np.linalg.LinAlgError:
            return np.tril(by_matrix(x)[0])

    return run


def cholesky_factors(x: Any) -> Any:
    """Cholesky factors of matrices of real numbers, whose lower triangles are read, and NaN in place of those that there are none of."""
    if x.shape[-1] <= SMALL:
        return _small_factors(x)
    found = np.zeros(x.shape, x.dtype)
    _factorize_halves(x, found)
    failed = np.isnan(found[..., -1, -1])  # what has failed is so from there to the end
    if failed.any():
        found[failed] = np.tril(np.full(x.shape[-2:], np.nan, x.dtype))
    return found


def _factorize_halves(x: Any, found: Any) -> None:
    """Write the factors of the upper half of the rows, the others' coefficients in these, and the factors of what these leave of them."""
    size = x.shape[-1]
    if size <= SMALL:
        found[...] = _small_factors(x)
        return
    half = _half(size)
    first, rest = slice(half), slice(half, None)
    _factorize_halves(x[..., first, first], found[..., first, first])
    between = _substituted(found[..., first, first], x[..., rest, first].mT, False, True, False)
    found[..., rest, first] = between.mT
    taken = of_matrices(True, False, x.dtype)(between, between)
    _factorize_halves(np.subtract(x[..., rest, rest], taken, out=taken), found[..., rest, rest])


def _half(size: int) -> int:
    """How many rows the first half of so many are, of whole blocks."""
    return -(-size // (2 * SMALL)) * SMALL


def _small_factors(x: Any) -> Any:
    """Cholesky factors (`lanes.cholesky`)."""
    x = np.array(x, order="C")
    blocks.cholesky(_batch(x))
    return x


@rule("eigh", cost=partial(lapack, element=80.0))
def _eigh(eqn: Any) -> Any:
    p, size = eqn.params, eqn.invars[0].aval.shape[-1]
    if p["subset_by_index"] not in (None, (0, size)) or not size:
        raise Unknown("a part of the eigenvalues")
    if _is_real(eqn):
        return _safe(lambda x: numpy_lapack.eigh(x, not p["lower"])[::-1], _avals(eqn))
    triangle = "L" if p["lower"] else "U"
    return _safe(lambda x: np.linalg.eigh(x, triangle)[::-1], _avals(eqn))


def _finite(x: Any) -> Any:
    """The matrices, if no element is infinite: of some that have such LAPACK does not come back."""
    if not np.isfinite(x).all():
        raise np.linalg.LinAlgError
    return x


@rule("svd", cost=lambda eqn: lapack(eqn, 130.0 if eqn.params["compute_uv"] else 60.0))
def _svd(eqn: Any) -> Any:
    p = eqn.params
    if p["subset_by_index"] is not None or 0 in eqn.invars[0].aval.shape[-2:]:
        raise Unknown("a part of the singular values")
    real, full = _is_real(eqn), p["full_matrices"]
    if not p["compute_uv"]:
        return _safe(lambda x: [numpy_lapack.svdvals(_finite(x)) if real else np.linalg.svd(_finite(x), compute_uv=False)], _avals(eqn))

    def solve(x: Any) -> list[Any]:
        u, s, vh = numpy_lapack.svd(_finite(x), full) if real else np.linalg.svd(_finite(x), full)
        return [s, u, vh]

    return _safe(solve, _avals(eqn))


@rule("eig", cost=partial(lapack, element=600.0))
def _eig(eqn: Any) -> Any:
    p = eqn.params
    if p["compute_left_eigenvectors"] or not eqn.invars[0].aval.shape[-1]:
        raise Unknown("left eigenvectors")
    if p["compute_right_eigenvectors"]:
        return _safe(np.linalg.eig, _avals(eqn))
    return _safe(lambda x: [np.linalg.eigvals(x)], _avals(eqn))


@rule("qr", cost=partial(lapack, element=35.0))
def _qr(eqn: Any) -> Any:
    if eqn.params["pivoting"] or 0 in eqn.invars[0].aval.shape[-2:]:
        raise Unknown("pivoting")
    complete = eqn.params["full_matrices"]
    if _is_real(eqn):
        return _safe(lambda x: numpy_lapack.qr(x, complete), _avals(eqn))
    return _safe(lambda x: np.linalg.qr(x, "complete" if complete else "reduced"), _avals(eqn))


# Up to so many columns there is as soon a pseudo-inverse by singular values.
_FEW_COLUMNS = 10


def inverse_of_full_rank(a: Any, atol: float, rtol: float) -> Any:
    """The pseudo-inverses of matrices, by QR, whose singular values are all larger than `atol` and `rtol` times the largest; None where that is not
    certain: they lie between 1 / |R^-1| and |R|, Frobenius' norms; and where there are few columns."""
    wide = a.shape[-2] < a.shape[-1]
    tall = a.mT if wide else a
    if not (blocks.by_numbers and a.dtype.char in "fd" and _FEW_COLUMNS < tall.shape[-1] <= SMALL):
        return None
    q, r = numpy_lapack.qr(tall, False)
    r = contiguous(r)
    inverse = np.zeros(r.shape, r.dtype)
    inverse.reshape(*r.shape[:-2], -1)[..., :: r.shape[-1] + 1] = 1
    blocks.substitute(r.reshape(-1, *r.shape[-2:]), inverse.reshape(-1, *r.shape[-2:]), False, False, False)
    largest, least = [np.sqrt(np.add.reduce(x * x, (-2, -1))) for x in (r, inverse)]
    if not np.all(least * np.maximum(rtol * largest, atol) < 1):
        return None
    found = of_matrices(False, True, a.dtype)(inverse, q)
    return found.mT if wide else found


# ---------------------------------------------------------------------- matrix by matrix

# Up to this many rows and columns matrices are solved and factorized step by step, up to so many by such blocks and products. Beyond it scipy, which
# takes 110 ms to import, has LAPACK's own functions.
SMALL = 64 if blocks.by_numbers else 32
_BY_BLOCKS = 512
_INTS = np.dtype(np.int32)
# Up to so many orders of rows are made one by one.
_FEW = 8
# One call of such a function, in nanoseconds.
_ROUTINE = 12_000.0


def _routine(module: str, name: str, dtype: np.dtype) -> Any:
    return getattr(import_module(f"scipy.linalg.{module}"), "sdcz"["fdFD".index(dtype.char)] + name)


def _each(solve: Solver, outs: Sequence[tuple[tuple[int, ...], np.dtype]], rank: int) -> Callable[..., list[Any]]:
    """`solve` for each of a batch. rank: the operands' without the batch."""

    def run(*arrays: Any) -> list[Any]:
        results = [np.empty(shape, dtype) for shape, dtype in outs]
        for i in np.ndindex(arrays[0].shape[:-rank]):
            for result, one in zip(results, solve(*[a[i] for a in arrays]), strict=True):
                result[i] = one
        return results

    return run


def _batch(a: Any, rank: int = 2) -> Any:
    """A contiguous batch, of several dimensions or of none, as one of one dimension."""
    return a.reshape(math.prod(a.shape[:-rank]), *a.shape[-rank:])


def _elimination(eqn: Any, step: float) -> float:
    """The cost of so many multiply-adds as eliminating takes. step: what NumPy takes for one column besides."""
    a, changed = eqn.invars[0].aval, eqn.invars[-1].aval
    *batch, rows, columns = a.shape
    least = min(rows, columns)
    besides, one = eliminating(least, step)
    return 2000.0 + math.prod(batch) * besides + one * weight(a.dtype) * least * changed.size


def eliminating(size: int, step: float = 0.0) -> tuple[float, float]:
    """What eliminating so many columns takes besides, and one of its multiply-adds. step: see `_elimination`."""
    if size > _BY_BLOCKS:
        return _ROUTINE, 0.4
    if blocks.by_numbers:
        return 500.0 if size <= SMALL else 8_000.0 * -(-size // SMALL), 0.05
    return step * size, 0.4


@rule("triangular_solve", cost=partial(_elimination, step=7_000.0))
def _triangular_solve(eqn: Any) -> Any:
    p, (shape, dtype) = eqn.params, _avals(eqn)[0]
    if dtype.kind not in "fc" or dtype.itemsize == 2:
        raise Unknown("triangular_solve")
    size = eqn.invars[0].aval.shape[-1]
    if 0 in shape or not size:
        return lambda a, b: b
    left, lower, unit, transposed = p["left_side"], p["lower"], p["unit_diagonal"], p["transpose_a"]
    conjugated = p["conjugate_a"] and dtype.kind == "c"

    def run(a: Any, b: Any) -> Any:
        a = np.conj(a) if conjugated else a
        found = substituted(a, b if left else b.mT, transposed == left, lower != (transposed == left), unit)
        return found if left else found.mT

    return run


def substituted(a: Any, b: Any, turned: bool, lower: bool, unit: bool = False) -> Any:
    """The solutions of triangular systems of any size, in memory of their own; of which triangle, see `lanes.substitute`."""
    if a.shape[-1] <= _BY_BLOCKS:
        return _substituted(a, b, turned, lower, unit)

    def by_blas(a: Any, b: Any) -> list[Any]:
        return [_routine("blas", "trsm", b.dtype)(1, a, b, lower=int(lower != turned), trans_a=int(turned), diag=int(unit))]

    return _each(by_blas, [(b.shape, b.dtype)], 2)(a, b)[0]


def _substituted(a: Any, b: Any, turned: bool, lower: bool, unit: bool) -> Any:
    """Those of a half of them, then the others', from which these are taken."""
    size = a.shape[-1]
    if size <= SMALL:
        return _step_by_step(a, b, turned, lower, unit)
    half = _half(size)
    first, rest = (slice(half), slice(half, None)) if lower else (slice(half, None), slice(half))
    x = np.empty(b.shape, b.dtype)
    known = x[..., first, :] = _substituted(a[..., first, first], b[..., first, :], turned, lower, unit)
    taken = of_matrices(turned, False, b.dtype)(a[..., first, rest] if turned else a[..., rest, first], known)
    x[..., rest, :] = _substituted(a[..., rest, rest], np.subtract(b[..., rest, :], taken, out=taken), turned, lower, unit)
    return x


def _step_by_step(a: Any, b: Any, turned: bool, lower: bool, unit: bool) -> Any:
    """The solutions of small triangular systems (`lanes.substitute`)."""
    x = np.array(b, order="C")
    systems, found = _batch(np.ascontiguousarray(a)), _batch(x)
    if x.dtype.kind != "c":
        blocks.substitute(systems, found, turned, lower, unit)
        return x
    size, columns = x.shape[-2:]
    for system, one in zip(systems, found, strict=True):
        lanes.substitute(0, system.reshape(-1), one.reshape(-1), size, columns, turned, lower, unit)
    return x


@rule("lu", cost=partial(_elimination, step=15_000.0))
def _lu(eqn: Any) -> Any:
    if 0 in eqn.invars[0].aval.shape[-2:]:
        raise Unknown("nothing to factorize")
    return lu_factors


def lu_factors(a: Any) -> list[Any]:
    """Of matrices of any size both triangles of their LU factorizations in one, the pivots from 0 and the orders of the rows, int32."""
    *batch, rows, columns = a.shape
    if max(rows, columns) <= SMALL:
        return _factorized(a)
    made = [(a.shape, a.dtype), ((*batch, min(rows, columns)), _INTS), ((*batch, rows), _INTS)]
    if max(rows, columns) <= _BY_BLOCKS:
        return _each(_factorized_by_blocks, made, 2)(a)
    found, pivots = _each(lambda a: _routine("lapack", "getrf", a.dtype)(a)[:2], made[:2], 2)(a)
    return [found, pivots, permutations(pivots, rows)]


def _factorized(a: Any) -> list[Any]:
    """Both triangles in one matrix, the pivots and the permutation (`lanes.factorize`)."""
    a = np.array(a, order="C")
    *batch, rows, columns = a.shape
    pivots, order = np.empty((*batch, min(rows, columns)), np.int32), np.empty((*batch, rows), np.int32)
    if a.dtype.kind != "c":
        blocks.factorize(_batch(a), pivots, order)
        return [a, pivots, order]
    for matrix, exchanged, one in zip(_batch(a), _batch(pivots, 1), _batch(order, 1), strict=True):
        lanes.factorize(0, matrix.reshape(-1), exchanged, one, rows, columns)
    return [a, pivots, order]


def _factorized_by_blocks(a: Any) -> list[Any]:
    """The same of one matrix: columns by columns, what is right of them by products."""
    a = np.array(a, order="C")
    rows, columns = a.shape
    pivots, order = np.empty(min(rows, columns), np.int32), np.arange(rows, dtype=np.int32)
    for begin in range(0, len(pivots), SMALL):
        end = min(begin + SMALL, len(pivots))
        made, exchanged, moved = _factorized(a[begin:, begin:end])
        to = np.flatnonzero(moved != np.arange(rows - begin))  # most rows stay
        a[begin + to], order[begin + to] = a[begin + moved[to]], order[begin + moved[to]]
        a[begin:, begin:end], pivots[begin:end] = made, exchanged + begin
        if end < columns:
            a[begin:end, end:] = _step_by_step(made[: end - begin], a[begin:end, end:], False, True, True)
            a[end:, end:] -= of_matrices(False, False, a.dtype)(made[end - begin :], a[begin:end, end:])
    return [a, pivots, order]


def permutations(pivots: Any, size: int) -> Any:
    """The orders of rows that exchanges of row after row make, int32."""
    count = math.prod(pivots.shape[:-1])
    if count > _FEW:
        made, every = np.tile(np.arange(size, dtype=np.int32), (count, 1)), np.arange(count)
        for i, others in enumerate(_batch(pivots, 1).T):
            made[every, others], made[:, i] = made[:, i].copy(), made[every, others]
        return made.reshape(*pivots.shape[:-1], size)
    orders = []
    for exchanges in _batch(pivots, 1).tolist():
        order = list(range(size))
        for i, j in enumerate(exchanges):
            order[i], order[j] = order[j], order[i]
        orders.append(order)
    return np.array(orders, np.int32).reshape(*pivots.shape[:-1], size)


@rule("lu_pivots_to_permutation")
def _lu_pivots_to_permutation(eqn: Any) -> Any:
    return partial(permutations, size=eqn.params["permutation_size"])


@rule("geqrf", cost=partial(lapack, element=20.0, matrix=_ROUTINE))
def _geqrf(eqn: Any) -> Any:
    shape, dtype = _avals(eqn)[0]
    if 0 in shape[-2:]:
        raise Unknown("nothing to factorize")
    return _each(lambda a: _routine("lapack", "geqrf", dtype)(a)[:2], _avals(eqn), 2)


@rule("householder_product", cost=partial(lapack, element=20.0, matrix=_ROUTINE))
def _householder_product(eqn: Any) -> Any:
    shape, dtype = _avals(eqn)[0]
    if 0 in (*shape[-2:], eqn.invars[1].aval.shape[-1]):
        raise Unknown("nothing to multiply")

    def run(a: Any, taus: Any) -> Any:
        orgqr = _routine("lapack", "ungqr" if dtype.kind == "c" else "orgqr", dtype)
        found = np.empty(shape, dtype)
        for i in np.ndindex(shape[:-2]):
            found[i] = orgqr(a[i], taus[i])[0]
        return found

    return run
