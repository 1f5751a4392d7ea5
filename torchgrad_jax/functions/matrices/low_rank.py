"""Singular values and principal components of matrices of low rank, by random projections (Halko, Martinsson & Tropp, "Finding structure with
randomness", SIAM Review 53, 2011: algorithms 4.4 and 5.1)."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.matrices.decompositions import linalg_qr, svd
from torchgrad_jax.functions.random_factories import randn

_COLUMNS = 6


@public("torch")
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V): the q largest singular values S of A (*, m, n), or of A - M, about, and their vectors: U (*, m, q), V (*, n, q), A = U diag(S) V^H.

    They are those of A's part in the range of q random columns, drawn from the generator, which A A^H has been applied to niter times. M: what
    broadcasts to A. ValueError for less than two dimensions.
    """
    q, niter = _COLUMNS if q is None else q, 2 if niter is None else niter
    m, n = A.shape[-2:]
    centers = None if M is None else M.broadcast_to(A.size())
    if m < n:
        v, s, u = _tall(A.mH, q, niter, None if centers is None else centers.mH)
        return u, s, v
    return _tall(A, q, niter, centers)


def _tall(a: Any, q: int, niter: int, centers: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Of a matrix that has no more columns than rows."""

    def times(x: Any) -> Any:
        return a @ x if centers is None else a @ x - centers @ x

    def adjoint_times(x: Any) -> Any:
        return a.mH @ x if centers is None else a.mH @ x - centers.mH @ x

    basis = linalg_qr(times(randn(a.shape[-1], q, dtype=a.dtype, device=a.device))).Q
    for _ in range(niter):
        basis = linalg_qr(times(linalg_qr(adjoint_times(basis)).Q)).Q
    within = basis.mH @ a if centers is None else basis.mH @ a - basis.mH @ centers
    u, s, vh = svd(within, full_matrices=False)
    return basis @ u, s, vh.mH


@public("torch")
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V): the first q principal components of the rows of A (*, m, n), about: the columns of V (*, n, q), by `svd_lowrank` of A less its mean
    row, if `center`. q: 6 if None, or as many as there can be. ValueError for a q that is negative or larger than m or n, or a negative niter."""
    m, n = A.shape[-2:]
    if q is None:
        q = min(_COLUMNS, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)
