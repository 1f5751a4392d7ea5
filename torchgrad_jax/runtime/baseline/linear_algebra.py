"""Factorizations and triangular systems, by LAPACK. What fails is NaN, and no error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.cost import lapack
from torchgrad_jax.runtime.baseline.rules import Unknown, rule

Solver = Callable[..., Any]


def _avals(eqn: Any) -> list[tuple[tuple[int, ...], np.dtype]]:
    return [(v.aval.shape, v.aval.dtype) for v in eqn.outvars]


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


@rule("cholesky", cost=lapack)
def _cholesky(eqn: Any) -> Any:
    """Reads the lower triangle."""
    run = _safe(lambda x: [np.linalg.cholesky(x)], _avals(eqn))
    return lambda x: np.tril(run(x)[0]) if x.size else x


@rule("eigh", cost=partial(lapack, work=9.0))
def _eigh(eqn: Any) -> Any:
    p, size = eqn.params, eqn.invars[0].aval.shape[-1]
    if p["subset_by_index"] not in (None, (0, size)) or not size:
        raise Unknown("a part of the eigenvalues")
    triangle = "L" if p["lower"] else "U"
    return _safe(lambda x: np.linalg.eigh(x, triangle)[::-1], _avals(eqn))


@rule("svd", cost=partial(lapack, work=15.0))
def _svd(eqn: Any) -> Any:
    p = eqn.params
    if p["subset_by_index"] is not None or 0 in eqn.invars[0].aval.shape[-2:]:
        raise Unknown("a part of the singular values")
    if not p["compute_uv"]:
        return _safe(lambda x: [np.linalg.svd(x, compute_uv=False)], _avals(eqn))
    full = p["full_matrices"]

    def solve(x: Any) -> list[Any]:
        u, s, vh = np.linalg.svd(x, full)
        return [s, u, vh]

    return _safe(solve, _avals(eqn))


@rule("eig", cost=partial(lapack, work=25.0))
def _eig(eqn: Any) -> Any:
    p = eqn.params
    if p["compute_left_eigenvectors"] or not eqn.invars[0].aval.shape[-1]:
        raise Unknown("left eigenvectors")
    if p["compute_right_eigenvectors"]:
        return _safe(np.linalg.eig, _avals(eqn))
    return _safe(lambda x: [np.linalg.eigvals(x)], _avals(eqn))


@rule("qr", cost=partial(lapack, work=3.0))
def _qr(eqn: Any) -> Any:
    if eqn.params["pivoting"] or 0 in eqn.invars[0].aval.shape[-2:]:
        raise Unknown("pivoting")
    mode = "complete" if eqn.params["full_matrices"] else "reduced"
    return _safe(lambda x: np.linalg.qr(x, mode), _avals(eqn))


# ---------------------------------------------------------------------- matrix by matrix

# Up to this many rows and columns NumPy solves and factorizes step by step. scipy, which has LAPACK's own functions, takes 110 ms to import.
_SMALL = 32


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


def _solving(eqn: Any) -> float:
    return lapack(eqn) * max(1.0, eqn.invars[1].aval.size / max(1, eqn.invars[0].aval.size))


@rule("triangular_solve", cost=_solving)
def _triangular_solve(eqn: Any) -> Any:
    p, (shape, dtype) = eqn.params, _avals(eqn)[0]
    if dtype.kind not in "fc" or dtype.itemsize == 2:
        raise Unknown("triangular_solve")
    size = eqn.invars[0].aval.shape[-1]
    if 0 in shape or not size:
        return lambda a, b: b
    left, lower, unit, transposed = p["left_side"], p["lower"], p["unit_diagonal"], p["transpose_a"]
    conjugated = p["conjugate_a"] and dtype.kind == "c"

    def by_steps(a: Any, b: Any) -> list[Any]:
        a = np.conj(a) if conjugated else a
        found = _substituted(a if transposed != left else a.T, b if left else b.T, lower == (transposed != left), unit)
        return [found if left else found.T]

    def by_blas(a: Any, b: Any) -> list[Any]:
        a = np.conj(a) if conjugated else a
        return [_routine("blas", "trsm", dtype)(1, a, b, side=int(not left), lower=int(lower), trans_a=int(transposed), diag=int(unit))]

    run = _each(by_steps if size <= _SMALL else by_blas, [(shape, dtype)], 2)
    return lambda a, b: run(a, b)[0]


def _substituted(a: Any, b: Any, lower: bool, unit: bool) -> Any:
    """The solution of a triangular system, row after row. The other triangle of `a` is not read."""
    x, size = np.array(b), len(a)
    for i in range(size) if lower else range(size - 1, -1, -1):
        known = slice(i) if lower else slice(i + 1, size)
        x[i] -= a[i, known] @ x[known]
        if not unit:
            x[i] /= a[i, i]
    return x


@rule("lu", cost=partial(lapack, work=0.7))
def _lu(eqn: Any) -> Any:
    shape, dtype = _avals(eqn)[0]
    if 0 in shape[-2:]:
        raise Unknown("nothing to factorize")

    def solve(a: Any) -> list[Any]:
        found, pivots = _factorized(a) if max(shape[-2:]) <= _SMALL else _routine("lapack", "getrf", dtype)(a)[:2]
        return [found, pivots, _permutation(pivots, a.shape[0])]

    return _each(solve, _avals(eqn), 2)


def _factorized(a: Any) -> tuple[Any, Any]:
    """Both triangles in one matrix, and which row each was exchanged with: the largest of its column, by what LAPACK takes for a complex size."""
    a = np.array(a)
    pivots = np.arange(min(a.shape))
    for k in range(len(pivots)):
        column = a[k:, k]
        pivots[k] = k + np.argmax(np.abs(column.real) + np.abs(column.imag) if a.dtype.kind == "c" else np.abs(column))
        if pivots[k] != k:
            a[[k, pivots[k]]] = a[[pivots[k], k]]
        if a[k, k] != 0:
            a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, pivots


def _permutation(pivots: Any, size: int) -> list[int]:
    """The order of rows that exchanges of row after row make."""
    found = list(range(size))
    for i, j in enumerate(pivots.tolist()):
        found[i], found[j] = found[j], found[i]
    return found


@rule("lu_pivots_to_permutation")
def _lu_pivots_to_permutation(eqn: Any) -> Any:
    size = eqn.params["permutation_size"]
    run = _each(lambda pivots: [_permutation(pivots, size)], _avals(eqn), 1)
    return lambda pivots: run(pivots)[0]


@rule("geqrf", cost=partial(lapack, work=1.5))
def _geqrf(eqn: Any) -> Any:
    shape, dtype = _avals(eqn)[0]
    if 0 in shape[-2:]:
        raise Unknown("nothing to factorize")
    return _each(lambda a: _routine("lapack", "geqrf", dtype)(a)[:2], _avals(eqn), 2)


@rule("householder_product", cost=partial(lapack, work=1.5))
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
