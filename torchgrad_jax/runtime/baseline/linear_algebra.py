"""Factorizations and triangular systems, by LAPACK. What fails is NaN, and no error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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


# ---------------------------------------------------------------------- by scipy, matrix by matrix


def _routine(module: Any, name: str, dtype: np.dtype) -> Any:
    return getattr(module, "sdcz"["fdFD".index(dtype.char)] + name)


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
    from scipy.linalg import blas

    p, (shape, dtype) = eqn.params, _avals(eqn)[0]
    if dtype.kind not in "fc" or dtype.itemsize == 2:
        raise Unknown("triangular_solve")
    if 0 in shape or 0 in eqn.invars[0].aval.shape:
        return lambda a, b: b
    trsm = _routine(blas, "trsm", dtype)
    conjugated = p["conjugate_a"] and not p["transpose_a"]
    form = (2 if p["conjugate_a"] else 1) if p["transpose_a"] else 0
    options = {"side": int(not p["left_side"]), "lower": int(p["lower"]), "trans_a": form, "diag": int(p["unit_diagonal"])}

    def solve(a: Any, b: Any) -> list[Any]:
        return [trsm(1, np.conj(a) if conjugated else a, b, **options)]

    run = _each(solve, [(shape, dtype)], 2)
    return lambda a, b: run(a, b)[0]


@rule("lu", cost=partial(lapack, work=0.7))
def _lu(eqn: Any) -> Any:
    from scipy.linalg import lapack as routines

    shape, dtype = _avals(eqn)[0]
    if 0 in shape[-2:]:
        raise Unknown("nothing to factorize")
    getrf = _routine(routines, "getrf", dtype)

    def solve(a: Any) -> list[Any]:
        found, pivots, _ = getrf(a)
        return [found, pivots, _permutation(pivots, a.shape[0])]

    return _each(solve, _avals(eqn), 2)


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
    from scipy.linalg import lapack as routines

    shape, dtype = _avals(eqn)[0]
    if 0 in shape[-2:]:
        raise Unknown("nothing to factorize")
    geqrf = _routine(routines, "geqrf", dtype)
    return _each(lambda a: geqrf(a)[:2], _avals(eqn), 2)


@rule("householder_product", cost=partial(lapack, work=1.5))
def _householder_product(eqn: Any) -> Any:
    from scipy.linalg import lapack as routines

    shape, dtype = _avals(eqn)[0]
    if 0 in (*shape[-2:], eqn.invars[1].aval.shape[-1]):
        raise Unknown("nothing to multiply")
    orgqr = _routine(routines, "ungqr" if dtype.kind == "c" else "orgqr", dtype)

    def run(a: Any, taus: Any) -> Any:
        found = np.empty(shape, dtype)
        for i in np.ndindex(shape[:-2]):
            found[i] = orgqr(a[i], taus[i])[0]
        return found

    return run
