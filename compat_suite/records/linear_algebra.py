"""Products, decompositions, solutions, norms of matrices; discrete Fourier transforms."""

from __future__ import annotations

import jax
from jax import numpy as jnp

import torchgrad_jax as tj
from compat_suite.records.record import REAL, Make, Record, given, pairs

H = lambda a: jnp.conj(jnp.matrix_transpose(a))  # noqa: E731
square = lambda make: [make.matrix(3, 3), make.matrix(2, 3, 3)]  # noqa: E731
oblong = lambda make: [make.matrix(4, 3), make.matrix(2, 3, 4)]  # noqa: E731
vectors = pairs(((4,), (4,)))


def definite(make: Make):
    """Hermitian matrices with positive eigenvalues."""
    yield make.matrix(3, 3)
    yield make.matrix(2, 2, 2)


def systems(make: Make):
    """Matrices and right-hand sides."""
    yield make.matrix(3, 3), make(3, 2)
    yield make.matrix(2, 3, 3), make(2, 3, 1)


def triangular(make: Make):
    """Upper and lower triangular systems."""
    yield make.matrix(3, 3), make(3, 2), {"upper": True}
    yield make.matrix(3, 3), make(3, 2), {"upper": False, "unitriangular": True}


def hermitian(function):
    """The function of a matrix made hermitian and positive, in our library."""
    return lambda a, *rest, **keywords: function(a @ a.mH, *rest, **keywords)


def of_hermitian(function):
    """The same with JAX."""
    return lambda a, *rest, **keywords: function(a @ H(a), *rest, **keywords)


def solved(a, b, upper, unitriangular=False):
    """A triangular system solved by JAX."""
    return jax.scipy.linalg.solve_triangular(a, b, lower=not upper, unit_diagonal=unitriangular)


def from_svd(u, s, vh):
    """What is determined of a singular value decomposition: all but phases."""
    return (u * s[..., None, :]) @ vh, s, abs(u), abs(vh)


def from_eig(values, vectors):
    """What is determined of an eigendecomposition: all but phases and lengths."""
    return values, abs(vectors) ** 2


def put_together(values, vectors):
    """The matrix of these eigenvalues and eigenvectors."""
    return (vectors * values) @ tj.linalg.inv(vectors)


def from_qr(q, r):
    """What is determined of a QR decomposition: all but the phases of the diagonal."""
    return q @ r, abs(r)


def transformed(name: str, real: bool = False) -> Record:
    """A discrete Fourier transform, of one dimension or several."""
    several = name[-1] if name[-1] in "2n" else ""
    samples = {
        "": lambda make: [make(5), (make(3, 4), {"n": 6, "dim": 0, "norm": "ortho"})],
        "2": lambda make: [make(3, 4), (make(2, 3, 4), {"s": (4, 2), "norm": "forward"})],
        "n": lambda make: [make(2, 3), (make(2, 3, 4), {"dim": (0, 2)})],
    }[several]
    function = getattr(jnp.fft, name)

    def of_arrays(x, **keywords):
        if "dim" in keywords:
            keywords["axes" if several else "axis"] = keywords.pop("dim")
        return function(x, **keywords)

    return Record(f"fft.{name}", samples, of_arrays, dtypes=REAL if real else ("float64", "complex128"))


def shifted(name: str) -> Record:
    """A shift of frequencies."""
    function = getattr(jnp.fft, name)
    return Record(f"fft.{name}", lambda make: [make(5), (make(3, 4), {"dim": 1})], lambda x, dim=None: function(x, dim))


MATRIX_NORMS = lambda make: [(make.matrix(3, 4), {"ord": o}) for o in ("fro", "nuc", 2, -2, 1, float("inf"))]  # noqa: E731

RECORDS = [
    Record("__rmatmul__", pairs(((3, 4), (2, 3))), lambda x, y: y @ x),
    Record("addmm", lambda make: [(make(3, 2), make(3, 4), make(4, 2)), (make(2), make(3, 4), make(4, 2), {"beta": 0.5, "alpha": 2.0})],
           lambda x, a, b, beta=1, alpha=1: beta * x + alpha * (a @ b)),
    Record("addmv", lambda make: [(make(3), make(3, 4), make(4), {"beta": 0.5})], lambda x, a, v, beta=1: beta * x + a @ v),
    Record("baddbmm", lambda make: [(make(2, 3, 2), make(2, 3, 4), make(2, 4, 2), {"alpha": 2.0})], lambda x, a, b, alpha=1: x + alpha * (a @ b)),
    Record("bmm", pairs(((2, 3, 4), (2, 4, 2))), jnp.matmul),
    Record("cdist", lambda make: [(make(3, 2), make(4, 2)), (make(3, 2), make(4, 2), {"p": 3.0})],
           lambda x, y, p=2.0: (abs(x[:, None] - y[None]) ** p).sum(-1) ** (1 / p), dtypes=REAL),
    Record("cholesky", definite, of_hermitian(jnp.linalg.cholesky), hermitian(tj.linalg.cholesky)),
    Record("cholesky_solve", lambda make: [(make(3, 2), make.matrix(3, 3))], lambda b, low: jax.scipy.linalg.cho_solve((jnp.tril(low), True), b),
           lambda b, low: tj.cholesky_solve(b, low.tril())),
    Record("cross", lambda make: [(make(4, 3), make(4, 3), 1)], lambda x, y, dim: jnp.cross(x, y)),
    Record("dot", vectors, jnp.dot),
    Record("einsum", lambda make: [("ij,jk->ik", make(2, 3), make(3, 4)), ("bij,bj->b", make(2, 3, 4), make(2, 4)), ("ii->i", make(3, 3))],
           jnp.einsum),
    Record("kron", pairs(((2, 3), (3, 2)), ((2,), (3, 2))), jnp.kron),
    Record("linalg.cholesky", definite, of_hermitian(jnp.linalg.cholesky), hermitian(tj.linalg.cholesky)),
    Record("linalg.cholesky_ex", definite, of_hermitian(jnp.linalg.cholesky), hermitian(lambda a: tj.linalg.cholesky_ex(a)[0])),
    Record("linalg.cross", pairs(((4, 3), (4, 3))), jnp.cross),
    Record("linalg.det", square, jnp.linalg.det),
    Record("linalg.eig", lambda make: [make.matrix(3, 3)], lambda a: a + 0j, lambda a: put_together(*tj.linalg.eig(a))),
    Record("linalg.eigh", definite, of_hermitian(lambda a: from_eig(*jnp.linalg.eigh(a))), hermitian(lambda a: from_eig(*tj.linalg.eigh(a)))),
    Record("linalg.eigvalsh", definite, of_hermitian(jnp.linalg.eigvalsh), hermitian(tj.linalg.eigvalsh)),
    Record("linalg.inv", square, jnp.linalg.inv),
    Record("linalg.lstsq", lambda make: [(make.matrix(4, 3), make(4, 2))], lambda a, b: jnp.linalg.lstsq(a, b)[0],
           lambda a, b: tj.linalg.lstsq(a, b).solution),
    Record("linalg.lu_factor", lambda make: [make.matrix(3, 3)], jax.scipy.linalg.lu_factor,
           lambda a: (lambda lu, pivots: (lu, pivots - 1))(*tj.linalg.lu_factor(a))),
    Record("linalg.matrix_norm", MATRIX_NORMS, jnp.linalg.norm),
    Record("linalg.multi_dot", lambda make: [([make(2, 3), make(3, 4), make(4, 2)],)], jnp.linalg.multi_dot),
    Record("linalg.norm", lambda make: [make(3, 4), (make(4), 3), (make.matrix(3, 3), 2)], jnp.linalg.norm),
    Record("linalg.pinv", oblong, jnp.linalg.pinv),
    Record("linalg.qr", lambda make: [make.matrix(4, 3)], lambda a: from_qr(*jnp.linalg.qr(a)), lambda a: from_qr(*tj.linalg.qr(a))),
    Record("linalg.slogdet", square, jnp.linalg.slogdet),
    Record("linalg.solve", systems, jnp.linalg.solve),
    Record("linalg.solve_triangular", triangular, solved),
    Record("linalg.svd", oblong, lambda a: from_svd(*jnp.linalg.svd(a, False)), lambda a: from_svd(*tj.linalg.svd(a, full_matrices=False))),
    Record("linalg.svdvals", oblong, lambda a: jnp.linalg.svd(a, compute_uv=False)),
    Record("linalg.vecdot", pairs(((3, 4), (3, 4))), jnp.linalg.vecdot),
    Record("logdet", definite, of_hermitian(lambda a: jnp.linalg.slogdet(a)[1]), hermitian(lambda a: tj.logdet(a).real)),
    Record("matmul", pairs(((3, 4), (4, 2)), ((4,), (4, 2)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4,))), jnp.matmul),
    Record("matrix_exp", square, lambda a: jax.scipy.linalg.expm(a) if a.ndim == 2 else jax.vmap(jax.scipy.linalg.expm)(a)),
    Record("mm", pairs(((3, 4), (4, 2))), jnp.matmul),
    Record("mv", pairs(((3, 4), (4,))), jnp.matmul),
    Record("outer", pairs(((3,), (4,))), jnp.outer),
    Record("qr", lambda make: [make.matrix(4, 3)], lambda a: from_qr(*jnp.linalg.qr(a)), lambda a: from_qr(*tj.qr(a))),
    Record("svd", oblong, lambda a: from_svd(*jnp.linalg.svd(a, False)), lambda a: (lambda u, s, v: from_svd(u, s, v.mH))(*tj.svd(a))),
    Record("tensordot", lambda make: [(make(2, 3, 4), make(3, 4, 2), 2), (make(2, 3), make(3, 2), ([0], [1]))], jnp.tensordot),
    Record("trace", given(((3, 4),)), jnp.trace),
    *(transformed(name) for name in ("fft", "fft2", "fftn", "ifft", "ifft2", "ifftn", "irfft", "irfftn")),
    *(transformed(name, True) for name in ("rfft", "rfftn")),
    *map(shifted, ("fftshift", "ifftshift")),
]  # fmt: skip
