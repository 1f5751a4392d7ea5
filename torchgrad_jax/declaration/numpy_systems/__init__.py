"""Operators of matrices of real numbers: their forms on NumPy arrays, and those of their gradients. See `numpy_forms.py`.

They call what the interpreter calls for factorizations, triangular systems and products; the rest of their JAX functions are a dozen steps, which
take longer to be traced. Unlike other forms they give what these give to rounding only, as the interpreter does for factorizations.
"""

from torchgrad_jax.declaration.numpy_systems.cholesky import (
    cholesky,
    cholesky_checked,
    cholesky_inverse,
    cholesky_inverse_vjp,
    cholesky_solve,
    cholesky_solve_grads,
    cholesky_vjp,
)
from torchgrad_jax.declaration.numpy_systems.lapack import (
    eigh,
    eigh_vjp,
    eigvalsh,
    lstsq,
    lstsq_grads,
    pinv,
    qr,
    qr_vjp,
    svd,
    svd_vjp,
    svdvals,
)
from torchgrad_jax.declaration.numpy_systems.lu import (
    det,
    det_vjp,
    inverse,
    inverse_ex,
    inverse_vjp,
    slogdet,
    slogdet_vjp,
    solve,
    solve_ex,
    solve_grads,
)
from torchgrad_jax.declaration.numpy_systems.triangular import old_triangular, old_triangular_grads, triangular, triangular_grads

__all__ = [
    "cholesky", "cholesky_checked", "cholesky_inverse", "cholesky_inverse_vjp", "cholesky_solve", "cholesky_solve_grads", "cholesky_vjp", "det",
    "det_vjp", "eigh", "eigh_vjp", "eigvalsh", "inverse", "inverse_ex", "inverse_vjp", "lstsq", "lstsq_grads", "old_triangular",
    "old_triangular_grads", "pinv", "qr", "qr_vjp", "slogdet", "slogdet_vjp", "solve", "solve_ex", "solve_grads", "svd", "svd_vjp", "svdvals",
    "triangular", "triangular_grads",
]  # fmt: skip
