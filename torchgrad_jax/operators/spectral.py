"""Eigenvalues, singular values, QR, and what is computed by them: pseudo-inverse, rank, least squares, matrix functions.

The formulas of eigenvectors and singular vectors give the part of the gradient that does not depend on the vectors' phase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_systems
from torchgrad_jax.declaration import numpy_forms as forms
from torchgrad_jax.declaration.converting import broadcast_shapes, where, zeros_like
from torchgrad_jax.declaration.memory_order import COLUMNS, Order, by_columns
from torchgrad_jax.declaration.operator import NOT_IMPLEMENTED, op
from torchgrad_jax.declaration.refusals import no_derivative, not_implemented
from torchgrad_jax.operators.kernels import exponential, ldl, loops
from torchgrad_jax.operators.kernels.linalg_errors import (
    DEFICIENT,
    ILL_CONDITIONED,
    NOT_FINITE,
    ZERO_IN_D,
    check_float,
    check_kernel,
    check_pair,
    check_routine,
    check_square,
    checked_by_info,
    failure,
    first_failure,
    has_routine,
    in_single,
    matrix_float,
)
from torchgrad_jax.operators.linalg import PRIVATE, adjoint, diagonal, identity, mul, triangular, with_diagonal
from torchgrad_jax.operators.reduction import title
from torchgrad_jax.runtime.value import Aval

# ---------------------------------------------------------------------- eigenvalues


def _over_differences(x: Any, differences: Any) -> Any:
    """x / differences, 0 where both vanish: what does not depend on the vectors may have equal values."""
    nothing = (differences == 0) & (x == 0)
    return where(nothing, 0, x) / where(nothing, 1, differences).astype(x.dtype)


@in_single
def _eigh(a: Any, upper: bool) -> tuple[Any, Any, Any]:
    vectors, values = lax.linalg.eigh(a, lower=not upper, symmetrize_input=False)
    failed = jnp.isnan(values).any(-1)
    return values, vectors, where(failed, jnp.int32(max(a.shape[-1] - 1, 1)), jnp.int32(0))


def _eigh_grad(grad0: Any, grad1: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    v = eigenvectors
    differences = with_diagonal(eigenvalues[..., None, :] - eigenvalues[..., :, None], jnp.ones_like(eigenvalues))
    # The eigenvectors turn by an element of the unitary group: only the skew part can be meant.
    inner = _over_differences(_skew(mul(adjoint(v), grad1)) / 2, differences)
    return mul(v, with_diagonal(inner, grad0), adjoint(v))


def _eigh_shapes(a: Aval, upper: bool) -> None:
    check_square("linalg.eigh", a)
    check_routine("linalg_eigh_cpu", a)


@op("linalg_eigh(Tensor self, bool upper)", order=Order(None, by_columns),
    results=("eigenvalues", "eigenvectors"), grads={"self": _eigh_grad}, validate=_eigh_shapes,
    numpy=numpy_systems.eigh, numpy_vjp=numpy_systems.eigh_vjp, check=failure("linalg.eigh", ILL_CONDITIONED), **PRIVATE)  # fmt: skip
def linalg_eigh(a: Any, upper: bool) -> Any:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices given by one triangle."""
    return checked_by_info(_eigh)(a, upper=upper)


@op("linalg_eigvalsh(Tensor self, bool upper)", differentiable=False, validate=_eigh_shapes,
    numpy=numpy_systems.eigvalsh, check=failure("linalg.eigh", ILL_CONDITIONED), **PRIVATE)  # fmt: skip
def linalg_eigvalsh(a: Any, upper: bool) -> Any:
    """The eigenvalues alone, where no gradient is wanted."""
    values, _, info = _eigh(a, upper=upper)
    return values, first_failure(info)


def _eig_grad(grad0: Any, grad1: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    v = eigenvectors
    product = mul(adjoint(v), grad1)
    product = product - mul(adjoint(v), v * diagonal(product).real[..., None, :].astype(v.dtype))
    differences = with_diagonal(eigenvalues[..., None, :] - eigenvalues[..., :, None], jnp.ones_like(eigenvalues))
    inner = with_diagonal(_over_differences(product, differences.conj()), grad0)
    return jnp.linalg.solve(adjoint(v), mul(inner, adjoint(v)))


def _eig_shapes(a: Aval) -> None:
    check_square("linalg.eig", a)
    check_kernel("linalg_eig_out_cpu", a)


def _not_finite(offender: int) -> Exception:
    return RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")


@op(
    "linalg_eig(Tensor self)",
    order=Order(None, by_columns),
    results=("eigenvalues", "eigenvectors"),
    grads={"self": _eig_grad},
    validate=_eig_shapes,
    check=_not_finite,
    **PRIVATE,
)
def linalg_eig(a: Any) -> Any:
    """Complex eigenvalues and eigenvectors of length 1."""
    values, vectors = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return values, vectors, first_failure((~jnp.isfinite(a)).any().astype(jnp.int32))


# ---------------------------------------------------------------------- singular values


def _skew(x: Any) -> Any:
    return x - adjoint(x)


def _svd_grad(grad0: Any, grad1: Any, grad2: Any, U: Any, S: Any, Vh: Any) -> Any:
    m, n, k = U.shape[-2], Vh.shape[-1], S.shape[-1]
    u, vh, gu, gvh = U[..., :, :k], Vh[..., :k, :], grad0[..., :, :k], grad2[..., :k, :]
    squares = S * S
    differences = with_diagonal(squares[..., None, :] - squares[..., :, None], jnp.ones_like(S))
    by_row, by_column = S[..., :, None].astype(u.dtype), S[..., None, :].astype(u.dtype)
    uhgu, vhgv = mul(adjoint(u), gu), mul(vh, adjoint(gvh))
    inner = _over_differences(_skew(uhgu), differences) * by_column + by_row * _over_differences(_skew(vhgv), differences)
    main = grad1.astype(u.dtype)
    if jnp.iscomplexobj(u):
        main = main + _over_differences(diagonal(_skew(uhgu)), 2 * S)
    inner = with_diagonal(inner, main)
    made = mul(u, inner, vh)
    if m > k:
        rest = _over_differences(gu - mul(u, uhgu), jnp.broadcast_to(S[..., None, :], gu.shape))
        made = made + mul(rest, vh)
    if n > k:
        rest = _over_differences(gvh - mul(adjoint(vhgv), vh), jnp.broadcast_to(S[..., :, None], gvh.shape))
        made = made + mul(u, rest)
    return made


def _svd_info(a: Any) -> Any:
    return (~jnp.isfinite(a)).any((-2, -1)).astype(jnp.int32)


@op("linalg_svd(Tensor self, bool full_matrices)", order=Order(by_columns, None, by_columns),
    results=("U", "S", "Vh"), grads={"self": _svd_grad}, attributes="full_matrices",
    validate=matrix_float("linalg.svd", check_routine, "linalg_svd_cpu"), numpy=numpy_systems.svd, numpy_vjp=numpy_systems.svd_vjp,
    check=failure("linalg.svd", NOT_FINITE), **PRIVATE)  # fmt: skip
@in_single
def linalg_svd(a: Any, full_matrices: bool) -> Any:
    """Singular vectors and values, descending."""
    u, s, vh = jnp.linalg.svd(a, full_matrices=full_matrices)
    return u, s, vh, first_failure(_svd_info(a))


@op("linalg_svdvals(Tensor self)", differentiable=False, validate=matrix_float("linalg.svd", check_routine, "linalg_svd_cpu"),
    numpy=numpy_systems.svdvals, check=failure("linalg.svd", NOT_FINITE), **PRIVATE)  # fmt: skip
@in_single
def linalg_svdvals(a: Any) -> Any:
    """The singular values alone, where no gradient is wanted."""
    return jnp.linalg.svd(a, compute_uv=False), first_failure(_svd_info(a))


# ---------------------------------------------------------------------- QR


def _qr_square_grad(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    inner = jnp.triu(mul(gr, adjoint(r)) - mul(adjoint(q), gq))
    inner = inner + adjoint(inner)
    inner = with_diagonal(inner, diagonal(inner) / 2)
    return triangular(r, gq + mul(q, inner), False, left=False, conjugate=True)


def _qr_grad(grad0: Any, grad1: Any, Q: Any, R: Any, mode: str) -> Any:
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, mode='reduced') if you are "
            "going to differentiate through linalg.qr."
        )
    m, n = Q.shape[-2], R.shape[-1]
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    if m >= n:
        return _qr_square_grad(grad0, grad1, Q, R)
    # The first columns make Q; the others are Q times their part of R.
    beyond, g_beyond = R[..., :, m:], grad1[..., :, m:]
    gq = grad0 + mul(Q, mul(beyond, adjoint(g_beyond)))
    return jnp.concatenate([_qr_square_grad(gq, grad1[..., :, :m], Q, R[..., :, :m]), mul(Q, g_beyond)], -1)


@op(
    "linalg_qr(Tensor self, str mode)",
    order=Order(by_columns, by_columns),
    results=("Q", "R"),
    grads={"self": _qr_grad},
    validate=matrix_float("linalg.qr", check_kernel, "geqrf_cpu"),
    numpy=numpy_systems.qr,
    numpy_vjp=numpy_systems.qr_vjp,
    **PRIVATE,
)
def linalg_qr(a: Any, mode: str) -> Any:
    """Orthonormal columns and an upper triangle whose product is the matrix."""
    if mode == "r":
        return jnp.zeros((0,), a.dtype), jnp.linalg.qr(a, mode="r")
    return tuple(jnp.linalg.qr(a, mode=mode))


# ---------------------------------------------------------------------- pseudo-inverse, rank, least squares


def tolerance(s: Any, shape: tuple[int, ...], atol: float | None, rtol: float | None) -> Any:
    """The size below which a singular value counts as zero."""
    if rtol is None:
        rtol = float(np.finfo(np.dtype(s.dtype)).eps) * max(shape[-2:]) if not atol else 0.0
    largest = s.max(-1, keepdims=True) if s.shape[-1] else jnp.zeros((*s.shape[:-1], 1), s.dtype)
    return jnp.maximum(jnp.asarray(atol or 0.0, s.dtype), jnp.asarray(rtol, s.dtype) * largest)


def _pinv_grad(grad: Any, result: Any, self: Any) -> Any:
    a, p = self, result
    ph, gh = adjoint(p), adjoint(grad)
    if a.shape[-2] <= a.shape[-1]:
        k = mul(gh, p)
        kph = mul(k, ph)
        return -adjoint(mul(p, k)) + kph - mul(mul(a, p), kph) + mul(mul(ph, p), gh - mul(k, a))
    k = mul(p, gh)
    phk = mul(ph, k)
    return -adjoint(mul(k, p)) + mul(gh - mul(a, k), mul(p, ph)) + phk - mul(mul(phk, p), a)


def check_pinv(a: Aval, hermitian: bool = False, **statics: Any) -> None:
    """RuntimeError for what has no pseudo-inverse."""
    if a.ndim < 2 or not has_routine(a.dtype):
        raise RuntimeError(
            f"linalg.pinv({dtypes.of(np.dtype(a.dtype)).title}{{{list(a.shape)}}}): expected a tensor with 2 or more dimensions of float, double, "
            "cfloat or cdouble types"
        )
    if hermitian and a.size:
        check_square("linalg.eigh", a)


def _reciprocal(s: Any, limit: Any) -> Any:
    return where(jnp.abs(s) > limit, 1 / where(s == 0, 1, s), 0)


@op("linalg_pinv(Tensor self, any atol, any rtol, bool hermitian)", grads={"self": _pinv_grad}, validate=check_pinv,
    numpy=numpy_systems.pinv, **PRIVATE)  # fmt: skip
def linalg_pinv(a: Any, atol: float | None, rtol: float | None, hermitian: bool) -> Any:
    """The Moore-Penrose inverse."""
    if not a.size:
        return jnp.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if hermitian:
        v, s = lax.linalg.eigh(a, lower=True, symmetrize_input=False)
        inverse = _reciprocal(s, tolerance(jnp.abs(s), a.shape, atol, rtol))
        return mul(v * inverse[..., None, :].astype(v.dtype), adjoint(v))
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    inverse = _reciprocal(s, tolerance(s, a.shape, atol, rtol))
    return mul(adjoint(vh) * inverse[..., None, :].astype(a.dtype), adjoint(u))


def check_default_tolerance(dtype: Any) -> None:
    """RuntimeError for a dtype of which PyTorch does not know the distance of 1 from the next number, which is the tolerance unless told."""
    if not has_routine(dtype):
        raise RuntimeError("This function doesn't handle types other than float and double")


def _rank_shapes(a: Aval, atol: float | None, rtol: float | None, hermitian: bool) -> None:
    if rtol is None:
        check_default_tolerance(a.dtype)
    if not a.size:
        return
    if hermitian:
        _eigh_shapes(a, False)
    else:
        check_float("linalg.svd", a, low_precision=True)
        check_routine("linalg_svd_cpu", a)


@op("linalg_matrix_rank(Tensor self, any atol, any rtol, bool hermitian)", differentiable=False, validate=_rank_shapes, **PRIVATE)
def linalg_matrix_rank(a: Any, atol: float | None, rtol: float | None, hermitian: bool) -> Any:
    """The number of singular values that are not negligible."""
    if not a.size:
        return jnp.zeros(a.shape[:-2], jnp.int64)
    s = jnp.abs(lax.linalg.eigh(a, lower=True, symmetrize_input=False)[1]) if hermitian else jnp.linalg.svd(a, compute_uv=False)
    return jnp.sum(s > tolerance(s, a.shape, atol, rtol), -1, dtype=jnp.int64)


def _lstsq_pinverse(grad0: Any, grad1: Any, grad4: Any, self: Any, B: Any, solution: Any, residuals: Any) -> tuple[Any, Any]:
    """The gradients of the pseudo-inverse and of A directly."""
    g_pinverse = mul(grad0, adjoint(B)) + grad4
    return g_pinverse, _residual(grad1, self, B, solution, residuals)


def _residual(grad1: Any, self: Any, B: Any, solution: Any, residuals: Any) -> Any:
    if not residuals.size:
        return None
    return 2 * grad1[..., None, :].astype(self.dtype) * (mul(self, solution) - B)


def _lstsq_a(grad0: Any, grad1: Any, grad4: Any, self: Any, B: Any, solution: Any, residuals: Any, pinverse: Any) -> Any:
    g_pinverse, r = _lstsq_pinverse(grad0, grad1, grad4, self, B, solution, residuals)
    made = _pinv_grad(g_pinverse, pinverse, self)
    return made if r is None else made + mul(r, adjoint(solution))


def _lstsq_b(grad0: Any, grad1: Any, self: Any, B: Any, solution: Any, residuals: Any, pinverse: Any) -> Any:
    made = mul(adjoint(pinverse), grad0)
    r = _residual(grad1, self, B, solution, residuals)
    return made if r is None else made - r


def _lstsq_shapes(a: Aval, b: Aval, rcond: float | None, driver: str) -> None:
    name = "torch.linalg.lstsq"
    if a.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if b.ndim < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"{name}: Expected input and other to have the same dtype, but got input's dtype {dtypes.of(a.dtype).title} and other's dtype "
            f"{dtypes.of(b.dtype).title}"
        )
    if not 0 <= a.ndim - b.ndim <= 1:
        raise RuntimeError(f"{name}: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1")
    if a.shape[-2] != b.shape[-2]:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size(-2)")
    if rcond is None:
        check_default_tolerance(a.dtype)
    check_kernel("linalg_lstsq_cpu", a)
    broadcast_shapes(a.shape[:-2], b.shape[:-2])


def _deficient(a: Any) -> Any:
    """The first column (row, where there are more of those), from 1 on, that is nothing but a sum of those before it, as the QR decomposition says
    by an exact zero; 0 where there is none, and for a matrix of zeros, whose solution is zero."""
    tall = a if a.shape[-2] >= a.shape[-1] else adjoint(a)
    if not tall.size:
        return jnp.zeros(a.shape[:-2], jnp.int64)
    none = jnp.diagonal(jnp.linalg.qr(tall, mode="r"), axis1=-2, axis2=-1) == 0
    return where(none.any(-1) & (a != 0).any((-2, -1)), jnp.argmax(none, -1) + 1, 0)


def _lstsq(a: Any, b: Any, rcond: float | None, driver: str) -> Any:
    """The solution of least squares (of least norm where there are several), by the pseudo-inverse; "gels" takes all matrices to have full rank."""
    m, n = a.shape[-2:]
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    limit = zeros_like(s[..., :1]) if driver == "gels" else tolerance(s, a.shape, None, rcond)
    pinverse = mul(adjoint(vh) * _reciprocal(s, limit)[..., None, :].astype(a.dtype), adjoint(u))
    solution = mul(pinverse, b)
    real = s.dtype
    difference = mul(a, solution) - b
    residuals = jnp.sum((difference * difference.conj()).real, -2) if m > n and driver != "gelsy" else jnp.zeros((0,), real)
    rank = jnp.zeros((0,), jnp.int64) if driver == "gels" else jnp.sum(s > limit, -1, dtype=jnp.int64)
    values = s if driver in ("gelsd", "gelss") else jnp.zeros((0,), real)
    return solution, residuals, rank, values, pinverse


_LSTSQ: dict[str, Any] = dict(
    order=COLUMNS, results=("solution", "residuals", "rank", "singular_values", "pinverse"), node="LinalgLstsqBackward0",
    grads={"self": _lstsq_a, "B": _lstsq_b}, copies=("residuals",), validate=_lstsq_shapes,
    numpy_grads=numpy_systems.lstsq_grads, **PRIVATE
)  # fmt: skip
op("linalg_lstsq(Tensor self, Tensor B, any rcond, str driver)", numpy=numpy_systems.lstsq, **_LSTSQ)(_lstsq)


@op("linalg_lstsq_full_rank(Tensor self, Tensor B, any rcond, str driver)", check=failure("torch.linalg.lstsq", DEFICIENT), **_LSTSQ)
def linalg_lstsq_full_rank(a: Any, b: Any, rcond: float | None, driver: str) -> Any:
    """The same, where a matrix of less than full rank is refused."""
    return *_lstsq(a, b, rcond, driver), first_failure(_deficient(a))


# ---------------------------------------------------------------------- functions of matrices


@op("_identity_like(Tensor self)", differentiable=False, numpy=forms.identity_like, **PRIVATE)
def identity_like(a: Any) -> Any:
    """The identity in the shape of `self`."""
    return jnp.broadcast_to(identity(a), a.shape)


def _exp_shapes(a: Aval) -> None:
    check_square("linalg.matrix_exp", a)
    check_float("linalg.matrix_exp", a, low_precision=True)


def _matrix_exp_grad(grad: Any, self: Any) -> Any:
    return exponential.directional(adjoint(self), grad) if self.size else grad


@op("linalg_matrix_exp(Tensor self)", grads={"self": _matrix_exp_grad}, validate=_exp_shapes, numpy=exponential.matrix_exp,
    numpy_vjp=exponential.matrix_exp_vjp, **PRIVATE)  # fmt: skip
def linalg_matrix_exp(a: Any) -> Any:
    """The exponential of a matrix."""
    return exponential.of_matrix(a)


# ---------------------------------------------------------------------- products of reflections


def _householder_shapes(a: Aval, tau: Aval) -> None:
    name = "torch.linalg.householder_product"
    if a.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if a.shape[-2] < a.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if not tau.ndim:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    if a.shape[-1] < tau.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if a.ndim != tau.ndim + 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {tau.ndim} and input.ndim is equal to {a.ndim}"
        )
    if a.shape[:-2] != tau.shape[:-1]:
        raise RuntimeError(f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {list(tau.shape[:-1])}")
    if a.dtype != tau.dtype:
        raise RuntimeError(
            f"{name}: tau dtype {dtypes.of(np.dtype(tau.dtype)).title} does not match input dtype {dtypes.of(np.dtype(a.dtype)).title}"
        )
    check_kernel("orgqr_cpu", a)


@op(
    "linalg_householder_product(Tensor input, Tensor tau)",
    order=COLUMNS,
    validate=_householder_shapes,
    keeps=("result",),
    shows=("input", "tau"),
    **PRIVATE,
)
def householder_product(a: Any, tau: Any) -> Any:
    """The first columns of the product of the reflections I - tau v v^H; v is a column of `input` below its diagonal, and 1 there."""
    m, n = a.shape[-2:]
    made = jnp.broadcast_to(jnp.eye(m, n, dtype=a.dtype), a.shape)
    if not a.size or not tau.size:
        return made
    reflectors = jnp.moveaxis((jnp.tril(a, -1) + jnp.eye(m, n, dtype=a.dtype))[..., : tau.shape[-1]], -1, 0)

    def reflect(made: Any, one: Any) -> tuple[Any, None]:
        v, t = one[0][..., None], one[1][..., None, None]
        return made - t * mul(v, mul(adjoint(v), made)), None

    return loops.scan(reflect, made, (reflectors, jnp.moveaxis(tau, -1, 0)), reverse=True)[0]


def _ormqr_shapes(a: Aval, tau: Aval, other: Aval, left: bool, transpose: bool) -> None:
    name, dim, side = "torch.ormqr", -2 if left else -1, f"other.shape[{-2 if left else -1}]"
    for label, aval in (("input", a), ("other", other)):
        if aval.ndim < 2:
            raise RuntimeError(f"{name}: {label} must have at least 2 dimensions.")
    if other.shape[dim] < tau.shape[-1]:
        raise RuntimeError(f"{name}: {side} must be greater than or equal to tau.shape[-1]")
    if other.shape[dim] != a.shape[-2]:
        raise RuntimeError(f"{name}: {side} must be equal to input.shape[-2]")
    if tau.shape[-1] != min(other.shape[dim], a.shape[-1]):
        raise RuntimeError(f"{name}: tau.shape[-1] must be equal to min({side}, input.shape[-1])")
    for label, aval in (("tau", tau), ("other", other)):
        less = "one dimension less than" if label == "tau" else "the same number of dimensions as"
        if aval.ndim != a.ndim - (label == "tau"):
            raise RuntimeError(
                f"{name}: Expected {label} to have {less} input, but got {label}.ndim equal to {aval.ndim} and input.ndim is equal to {a.ndim}"
            )
        batch = aval.shape[: a.ndim - 2]
        if batch != a.shape[:-2]:
            raise RuntimeError(f"{name}: Expected batch dimensions of {label} to be equal to input.shape[:-2], but got {list(batch)}")
        if aval.dtype != a.dtype:
            raise RuntimeError(
                f"{name}: Expected input and {label} to have the same dtype, but input has dtype{title(a)} and {label} has dtype {title(aval)}"
            )
    check_kernel("ormqr_cpu", a)


@op(
    "ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False)",
    order=COLUMNS,
    keeps=("result",),
    validate=_ormqr_shapes,
    shows=("self", "input2", "input3"),
    attributes="left transpose",
)
def ormqr(a: Any, tau: Any, other: Any, left: bool, transpose: bool) -> Any:
    """Q @ input3, or input3 @ Q: Q is the whole product of the reflections that `geqrf` leaves in `self` and their factors `input2`; transpose: its
    adjoint."""
    if not left:
        return adjoint(_reflected(a, tau, adjoint(other), not transpose))
    return _reflected(a, tau, other, transpose)


def _reflected(a: Any, tau: Any, other: Any, backwards: bool) -> Any:
    """Q @ other, or Q^H @ other. The reflections I - tau v v^H go from the last to the first; those of Q^H have the conjugate of tau and go the other
    way."""
    if not other.size or not tau.size:
        return other
    m, n = a.shape[-2:]
    reflectors = jnp.moveaxis((jnp.tril(a, -1) + jnp.eye(m, n, dtype=a.dtype))[..., : tau.shape[-1]], -1, 0)

    def reflect(made: Any, one: Any) -> tuple[Any, None]:
        v, t = one[0][..., None], one[1][..., None, None]
        return made - (t.conj() if backwards else t) * mul(v, mul(adjoint(v), made)), None

    return loops.scan(reflect, other, (reflectors, jnp.moveaxis(tau, -1, 0)), reverse=not backwards)[0]


def _geqrf_shapes(a: Aval) -> None:
    if a.ndim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    check_kernel("geqrf_cpu", a)


@op("geqrf(Tensor self)", order=COLUMNS, results=("a", "tau"), validate=_geqrf_shapes, grads={"self": not_implemented("geqrf")})
def geqrf(a: Any) -> Any:
    """QR as LAPACK leaves it: R in the upper triangle, below it the reflections whose factors are `tau`."""
    turned, tau = jnp.linalg.qr(a, mode="raw")
    return jnp.swapaxes(turned, -2, -1), tau


# ---------------------------------------------------------------------- factorizations of symmetric matrices


def _ldl_input(a: Aval, *rest: Any, **statics: Any) -> None:
    name = "torch.linalg.ldl_factor_ex"
    check_square(name, a)
    check_float(name, a, low_precision=True)
    check_kernel("ldl_factor_kernel_cpu", a)


def _over_batch(function: Callable[..., Any], *arrays: Any) -> Any:
    """What a function of matrices gives for batches of them."""
    batch = arrays[0].shape[: arrays[0].ndim - 2]
    if not batch:
        return function(*arrays)
    flat = [x.reshape(-1, *x.shape[len(batch) :]) for x in arrays]
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), jax.vmap(function)(*flat))


def _ldl_factor(a: Any, hermitian: bool) -> tuple[Any, Any, Any]:
    if not a.size:
        return a, jnp.zeros(a.shape[:-1], np.int32), jnp.zeros(a.shape[:-2], np.int32)
    return _over_batch(lambda x: ldl.factor(x, hermitian), a)


_LDL: dict[str, Any] = dict(
    order=COLUMNS, node=NOT_IMPLEMENTED, grads={"self": no_derivative("linalg_ldl_factor_ex")}, validate=_ldl_input, method=False, toplevel=False
)
op("linalg_ldl_factor_ex(Tensor self, bool hermitian)", results=("LD", "pivots", "info"), **_LDL)(_ldl_factor)
op("linalg_ldl_factor(Tensor self, bool hermitian)", results=("LD", "pivots"), **_LDL,
   check=failure("torch.linalg.ldl_factor", ZERO_IN_D, RuntimeError))(checked_by_info(_ldl_factor))  # fmt: skip


def _ldl_solve_shapes(made: Aval, pivots: Aval, b: Aval, hermitian: bool) -> None:
    name = "torch.linalg.ldl_solve"
    check_square(name, made)
    if b.ndim < 2:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-max(b.ndim, 1)}, {max(b.ndim, 1) - 1}], but got -2)")
    if made.shape[:-1] != pivots.shape:
        raise RuntimeError(f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape {list(pivots.shape)} instead")
    if pivots.dtype.kind not in "iu":
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {dtypes.of(np.dtype(pivots.dtype)).title}")
    check_pair(name, b, made)


_NO_LDL_SOLVE = no_derivative("linalg_ldl_solve")


@op("linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, bool hermitian)", order=COLUMNS, node=NOT_IMPLEMENTED,
    grads={"LD": _NO_LDL_SOLVE, "B": _NO_LDL_SOLVE}, validate=_ldl_solve_shapes, method=False, toplevel=False)  # fmt: skip
def linalg_ldl_solve(made: Any, pivots: Any, b: Any, hermitian: bool) -> Any:
    """The solution X of A X = B by the factorization of A; batches broadcast."""
    batch = jnp.broadcast_shapes(made.shape[:-2], b.shape[:-2])
    made, pivots, b = (jnp.broadcast_to(x, batch + x.shape[x.ndim - rank :]) for x, rank in ((made, 2), (pivots, 1), (b, 2)))
    return _over_batch(lambda a, rows, x: ldl.solve(a, rows, x, hermitian), made, pivots, b) if b.size else b
