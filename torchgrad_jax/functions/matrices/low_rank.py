"""Singular values of matrices of low rank, by random projections."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.matrices.decompositions import adjoint, linalg_qr, svd
from torchgrad_jax.functions.overloads import matmul
from torchgrad_jax.functions.random_factories import randn
from torchgrad_jax.functions.shaping import broadcast_to


@public("torch")
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) with U diag(S) V^H near A - M, of shapes (*, m, q), (*, q) and (*, n, q) for A (*, m, n) (Halko, Martinsson and Tropp 2011, Finding
    Structure with Randomness, algorithm 5.1).

    q: somewhat more than the rank of A; 6 if None. niter: steps of subspace iteration; 2 if None. M: broadcast to A. The random numbers are the
    default generator's. ValueError for vectors, RuntimeError for integers, TypeError for what is no dense tensor.
    """
    m, n = _dense("svd_lowrank", A)._aval.shape[-2:]
    if M is not None:
        A = A - broadcast_to(_dense("svd_lowrank", M), A._aval.shape)
    # The random matrix has as many rows as the smaller dimension.
    tall = A if m >= n else adjoint(A)
    basis = _basis(tall, 6 if q is None else q, 2 if niter is None else niter)
    inner, S, Vh = svd(matmul(adjoint(basis), tall), full_matrices=False)
    left, right = matmul(basis, inner), adjoint(Vh)
    return (left, S, right) if m >= n else (right, S, left)


@public("torch")
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """`svd_lowrank` of m samples of n features, A (*, m, n), less their means if `center`: the columns of V are the principal directions, and
    S^2 / (m - 1) the variances along them.

    q: how many directions; min(6, m, n) if None. ValueError for a q above min(m, n), a negative q or niter and for vectors; RuntimeError for
    integers, TypeError for what is no dense tensor.
    """
    m, n = _dense("pca_lowrank", A)._aval.shape[-2:]
    least = min(m, n)
    if q is None:
        q = min(6, least)
    elif not 0 <= q <= least:
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={least}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(dim=(-2,), keepdim=True) if center else A, q, niter)


def _dense(name: str, A: Any) -> Tensor:
    if not isinstance(A, Tensor):
        raise TypeError(f"{name}(): expected a dense Tensor, but got {type(A).__name__}; torchgrad_jax has no sparse tensors: use to_dense() first")
    return A


def _basis(A: Tensor, q: int, niter: int) -> Tensor:
    """Q (*, m, q) with orthonormal columns, such that Q Q^H A is near A (*, m, n): algorithm 4.4, which makes columns orthonormal after each
    product so that the small singular values are not lost."""
    dtype = A.dtype if A.is_floating_point() or A.is_complex() else dtypes.float32
    basis = linalg_qr(matmul(A, randn(A._aval.shape[-1], q, dtype=dtype, device=A.device)))[0]
    for _ in range(niter):
        basis = linalg_qr(matmul(adjoint(A), basis))[0]
        basis = linalg_qr(matmul(A, basis))[0]
    return basis
