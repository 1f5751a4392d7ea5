"""Decompositions by LAPACK as NumPy calls it, in double precision, without what `numpy.linalg` does around it, which takes twice as long as a matrix
of 4 x 4 does. What NumPy calls is not public: where it is not as it is known, `numpy.linalg` itself is asked.

Matrices are of real numbers, or several of them, and not empty. Of those for which LAPACK fails the results are NaN, or LinAlgError is raised.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray

_KINDS = {"eigh_lo": "d->dd", "eigh_up": "d->dd", "svd": "d->d", "svd_s": "d->ddd", "svd_f": "d->ddd", "qr_r_raw": "d->d", "qr_reduced": "dd->d"}


@cache
def _loop(name: str) -> Any:
    """NumPy's loop over matrices, None where there is none of these dtypes."""
    found = getattr(getattr(np.linalg, "_umath_linalg", None), name, None)
    return found if _KINDS[name] in getattr(found, "types", ()) else None


def eigh(a: Array, upper: bool) -> tuple[Array, Array]:
    """The eigenvalues, ascending, and eigenvectors of symmetric matrices that are read by one triangle."""
    loop = _loop("eigh_up" if upper else "eigh_lo")
    if loop is None:
        return np.linalg.eigh(a, "U" if upper else "L")
    values, vectors = loop(a, signature="d->dd")
    return values.astype(a.dtype, copy=False), vectors.astype(a.dtype, copy=False)


def svd(a: Array, full_matrices: bool) -> tuple[Array, Array, Array]:
    """U, S and Vh of finite matrices."""
    loop = _loop("svd_f" if full_matrices else "svd_s")
    if loop is None:
        return np.linalg.svd(a, full_matrices)
    u, s, vh = loop(a, signature="d->ddd")
    return u.astype(a.dtype, copy=False), s.astype(a.dtype, copy=False), vh.astype(a.dtype, copy=False)


def svdvals(a: Array) -> Array:
    """The singular values of finite matrices, descending."""
    loop = _loop("svd")
    return np.linalg.svd(a, compute_uv=False) if loop is None else loop(a, signature="d->d").astype(a.dtype, copy=False)


def qr(a: Array, complete: bool) -> tuple[Array, Array]:
    """Q and R, reduced or `complete`."""
    factorize, make = _loop("qr_r_raw"), _loop("qr_reduced")
    rows, columns = a.shape[-2:]
    if factorize is None or make is None or (complete and rows > columns):
        return np.linalg.qr(a, "complete" if complete else "reduced")
    made = a.astype(np.float64)  # R, and below it the reflections that make Q
    tau = factorize(made, signature="d->d")
    q = make(made, tau, signature="dd->d").astype(a.dtype, copy=False)
    least = min(rows, columns)
    return q, np.where(_upper(least, columns), made[..., :least, :], 0.0).astype(a.dtype, copy=False)


@cache
def _upper(rows: int, columns: int) -> Array:
    """Where the upper triangle is, with the diagonal."""
    return ~np.tri(rows, columns, -1, dtype=bool)
