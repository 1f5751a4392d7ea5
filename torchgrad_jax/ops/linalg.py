"""Decompositions of matrices, and what is computed by them: solutions, inverses, determinants, matrix functions.

Formulas: M. Giles, "An extended collection of matrix derivative results for forward and reverse mode automatic
differentiation" (2008); for eigenvectors and singular vectors as PyTorch's documentation of the gauge conditions has them.
Backward keeps the decomposition rather than computing it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.ops import dtypes
from torchgrad_jax.ops.declare import op
from torchgrad_jax.ops.matrix import PRECISION
from torchgrad_jax.runtime.value import Aval


class LinAlgError(RuntimeError):
    """A decomposition that does not exist, or did not converge."""


LinAlgError.__module__ = "torch.linalg"

PRIVATE = {"method": False, "toplevel": False}

# ---------------------------------------------------------------------- arguments


def check_matrix(name: str, a: Any, what: str = "A") -> None:
    """RuntimeError for fewer than 2 dimensions."""
    if a.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {what} must have at least 2 dimensions.")


def check_square(name: str, a: Any) -> None:
    """RuntimeError for what is not a batch of square matrices."""
    check_matrix(name, a)
    if a.shape[-1] != a.shape[-2]:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} matrices")


def check_float(name: str, a: Any, low_precision: bool = False) -> None:
    """RuntimeError for integers and for 16 bit floats."""
    kind = dtypes.of(np.dtype(a.dtype))
    if not dtypes.is_float(np.dtype(a.dtype)):
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {kind.title}")
    if kind.name in ("float16", "bfloat16") and not low_precision:
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {kind.title}")


def _square_float(name: str) -> Callable[..., None]:
    def validate(a: Aval, *rest: Any, **statics: Any) -> None:
        check_square(name, a)
        check_float(name, a)

    return validate


def _matrix_float(name: str) -> Callable[..., None]:
    def validate(a: Aval, *rest: Any, **statics: Any) -> None:
        check_matrix(name, a)
        check_float(name, a)

    return validate


# ---------------------------------------------------------------------- errors that depend on values
# The offending number is info + 2**32 * (element of the batch + 1), the element being -1 without a batch.


def _first_failure(info: Any) -> Any:
    """The check of `info`, nonzero where a matrix of the batch failed."""
    flat = info.reshape(-1).astype(jnp.int64)
    if not flat.size:
        return jnp.zeros(2, jnp.int64)
    where = jnp.argmax(flat != 0)
    element = where + 1 if info.ndim else jnp.zeros((), jnp.int64)
    return jnp.stack([(flat[where] != 0).astype(jnp.int64), flat[where] + (element.astype(jnp.int64) << 32)])


def _failure(name: str, text: str, error: type[Exception] = LinAlgError) -> Callable[[int], Exception]:
    def make(offender: int) -> Exception:
        element, info = (offender >> 32) - 1, offender & 0xFFFFFFFF
        where = "" if element < 0 else f"(Batch element {element}): "
        return error(f"{name}: {where}" + text.format(info=info))

    return make


_NOT_POSITIVE = (
    "The factorization could not be completed because the input is not positive-definite "
    "(the leading minor of order {info} is not positive-definite)."
)
_SINGULAR_INVERSE = "The diagonal element {info} is zero, the inversion could not be completed because the input matrix is singular."
_ZERO_PIVOT = (
    "U[{info},{info}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the factorization, "
    "consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
)
_NOT_FINITE = "The algorithm failed to converge because the input matrix contained non-finite values."
_ILL_CONDITIONED = (
    "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated eigenvalues (error code: {info})."
)


def _checked(function: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """The results of `function` without its last, info, and the check of info."""

    def checked(*arrays: Any, **statics: Any) -> tuple[Any, ...]:
        *outs, info = function(*arrays, **statics)
        return (*outs, _first_failure(info))

    return checked


# ---------------------------------------------------------------------- small parts


def mul(*matrices: Any) -> Any:
    """The product of matrices (batches of them) in full precision."""
    product = matrices[0]
    for m in matrices[1:]:
        product = jnp.matmul(product, m, precision=PRECISION)
    return product


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return jnp.swapaxes(x, -2, -1).conj()


def _diagonal(x: Any) -> Any:
    return jnp.diagonal(x, axis1=-2, axis2=-1)


def _eye(x: Any, n: int | None = None) -> Any:
    return jnp.eye(n or x.shape[-1], dtype=x.dtype)


def _with_diagonal(x: Any, d: Any) -> Any:
    return jnp.where(jnp.eye(x.shape[-1], dtype=bool), d[..., None, :].astype(x.dtype), x)


def triangular(a: Any, b: Any, lower: bool, left: bool = True, transpose: bool = False, conjugate: bool = False, unit: bool = False) -> Any:
    """The solution X of op(a) X = b (X op(a) = b unless `left`), a being triangular; batches broadcast."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = jnp.broadcast_to(a, batch + a.shape[-2:]), jnp.broadcast_to(b, batch + b.shape[-2:])
    return lax.linalg.triangular_solve(
        a, b, left_side=left, lower=lower, transpose_a=transpose or conjugate, conjugate_a=conjugate, unit_diagonal=unit
    )


def _half_diagonal(x: Any) -> Any:
    """The lower triangle with half of the diagonal."""
    return jnp.tril(x, -1) + jnp.tril(jnp.triu(x)) / 2


# ---------------------------------------------------------------------- Cholesky


def _hermitian(a: Any, upper: bool) -> Any:
    """What the one triangle that is read stands for."""
    one = jnp.tril(adjoint(a) if upper else a)
    return one


def _failed_minor(a: Any) -> Any:
    """The order of the first leading minor that is not positive, by elimination without square roots; 0 for none."""
    n = a.shape[-1]

    def step(k: Any, state: Any) -> Any:
        rest, found = state
        pivot = rest[k, k].real
        bad = ~(pivot > 0)
        column = jnp.where(jnp.arange(n) > k, rest[:, k], 0)
        rest = rest - jnp.outer(column, column.conj()) / jnp.where(bad, 1, pivot).astype(rest.dtype)
        return rest, jnp.where(bad & (found == 0), jnp.int32(k + 1), found)

    full = jnp.tril(a) + adjoint(jnp.tril(a, -1))
    return lax.fori_loop(0, n, step, (full, jnp.int32(0)))[1]


def _cholesky(a: Any, upper: bool) -> tuple[Any, Any]:
    lower = _hermitian(a, upper)
    factor = jnp.tril(lax.linalg.cholesky(lower, symmetrize_input=False))
    failed = jnp.isnan(_diagonal(factor).real).any(-1)
    minors = _failed_minor
    for _ in range(a.ndim - 2):
        minors = jax.vmap(minors)
    count = lambda: minors(lax.stop_gradient(lower))  # noqa: E731
    info = lax.cond(failed.any(), count, lambda: jnp.zeros(failed.shape, jnp.int32)) if a.size else jnp.zeros(failed.shape, jnp.int32)
    return (adjoint(factor) if upper else factor), info


def _cholesky_grad(grad: Any, factor: Any, upper: bool) -> Any:
    lower = adjoint(factor) if upper else factor
    grad = adjoint(grad) if upper else grad
    phi = _half_diagonal(mul(adjoint(lower), grad))
    phi = (phi + adjoint(phi)) / 2
    left = triangular(lower, phi, True, transpose=True, conjugate=True)
    return triangular(lower, left, True, left=False)


_NODE = "LinalgCholeskyExBackward0"
_CHOLESKY_GRADS = {"self": lambda grad, L, upper: _cholesky_grad(grad, L, upper)}
op("linalg_cholesky_ex(Tensor self, *, bool upper=False)", results=("L", "info"), node=_NODE, grads=_CHOLESKY_GRADS,
   validate=_square_float("linalg.cholesky"), **PRIVATE)(_cholesky)  # fmt: skip
for _name, _public, _node in (
    ("linalg_cholesky", "linalg.cholesky", _NODE), ("linalg_cholesky_ex_checked", "linalg.cholesky_ex", _NODE), ("cholesky", "cholesky", None),
):  # fmt: skip
    op(f"{_name}(Tensor self, *, bool upper=False)", results=("L",), node=_node, grads=_CHOLESKY_GRADS,
       validate=_square_float("linalg.cholesky" if _node else "cholesky"), check=_failure(_public, _NOT_POSITIVE),
       **PRIVATE)(_checked(_cholesky))  # fmt: skip


def _positive_solve(b: Any, factor: Any, upper: bool) -> Any:
    lower = adjoint(jnp.triu(factor)) if upper else jnp.tril(factor)
    return triangular(lower, triangular(lower, b, True), True, transpose=True, conjugate=True)


def _of_factor(common: Any, factor: Any, upper: bool) -> Any:
    """The gradient of the factor of what is inverted, `common` being that of the inverse between two inverses. Both triangles
    are filled, as PyTorch fills them."""
    common = common + adjoint(common)
    return -mul(factor, common) if upper else -mul(common, factor)


def _cholesky_solve_factor(grad: Any, input2: Any, result: Any, upper: bool) -> Any:
    return _of_factor(mul(_positive_solve(grad, input2, upper), adjoint(result)), input2, upper)


@op("cholesky_solve(Tensor self, Tensor input2, bool upper=False)", **PRIVATE,
    grads={"self": lambda grad, input2, upper: _positive_solve(grad, input2, upper), "input2": _cholesky_solve_factor})  # fmt: skip
def cholesky_solve(b: Any, factor: Any, upper: bool) -> Any:
    """The solution X of A X = b, A given by its Cholesky factor."""
    return _positive_solve(b, factor, upper)


@op("cholesky_inverse(Tensor self, bool upper=False)", validate=lambda a, upper: check_square("cholesky_inverse", a),
    grads={"self": lambda grad, self, result, upper: _of_factor(mul(result, grad, result), self, upper)})  # fmt: skip
def cholesky_inverse(factor: Any, upper: bool) -> Any:
    """The inverse of the matrix of which `self` is the Cholesky factor."""
    return _positive_solve(jnp.broadcast_to(_eye(factor), factor.shape), factor, upper)


# ---------------------------------------------------------------------- LU


def _zero_pivot(lu: Any) -> Any:
    """The number (from 1) of the first zero on U's diagonal; 0 for none."""
    zero = _diagonal(lu) == 0
    return jnp.where(zero.any(-1), jnp.argmax(zero, -1) + 1, 0).astype(jnp.int32) if lu.shape[-1] else jnp.zeros(lu.shape[:-2], jnp.int32)


def _lu(a: Any) -> tuple[Any, Any, Any]:
    """LU, pivots as LAPACK counts them, and the permutation."""
    lu, pivots, permutation = lax.linalg.lu(a)
    return lu, pivots.astype(jnp.int32) + 1, permutation


def permutation_of(pivots: Any, rows: int) -> Any:
    """The permutation that a sequence of exchanges is."""
    return lax.linalg.lu_pivots_to_permutation(pivots - 1, rows)


def _lu_solve(lu: Any, permutation: Any, b: Any) -> Any:
    b = jnp.take_along_axis(b, jnp.broadcast_to(permutation[..., None], (*b.shape[:-1], 1)).astype(jnp.int32), -2)
    return triangular(lu, triangular(lu, b, True, unit=True), False)


def _lu_solve_adjoint(lu: Any, permutation: Any, b: Any) -> Any:
    x = triangular(lu, triangular(lu, b, False, conjugate=True), True, conjugate=True, unit=True)
    inverse = jnp.argsort(permutation, -1)
    return jnp.take_along_axis(x, jnp.broadcast_to(inverse[..., None], (*x.shape[:-1], 1)).astype(jnp.int32), -2)


def solve_adjoint(a: Any, lu: Any, pivots: Any, b: Any) -> Any:
    """The solution X of a^H X = b by the decomposition of a; its derivative is that of the equation, not of `lu`."""
    shape = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = jnp.broadcast_to(a, shape + a.shape[-2:]), jnp.broadcast_to(b, shape + b.shape[-2:])
    lu = jnp.broadcast_to(lax.stop_gradient(lu), a.shape)
    permutation = jnp.broadcast_to(permutation_of(pivots, lu.shape[-1]), shape + lu.shape[-1:])
    if not b.size:
        return b
    return lax.custom_linear_solve(
        lambda x: mul(adjoint(a), x), b,
        lambda _, y: _lu_solve_adjoint(lu, permutation, y),
        lambda _, y: _lu_solve(lu.conj(), permutation, y),
    )  # fmt: skip


def _solve(a: Any, b: Any, left: bool) -> tuple[Any, ...]:
    vector = is_vector(a, b)
    b = b[..., None] if vector else b
    lu, pivots, permutation = _lu(a)
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    wide, order = jnp.broadcast_to(lu, batch + lu.shape[-2:]), jnp.broadcast_to(permutation, batch + permutation.shape[-1:])
    b = jnp.broadcast_to(b, batch + b.shape[-2:])
    x = _lu_solve(wide, order, b) if left else adjoint(_lu_solve_adjoint(wide, order, adjoint(b)))
    return (x[..., 0] if vector else x), lu, pivots, _zero_pivot(lu)


def is_vector(a: Any, b: Any) -> bool:
    """Whether the right side is a batch of vectors rather than of matrices."""
    return b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])


def _solve_other(grad: Any, a: Any, lu: Any, pivots: Any, left: bool, vector: bool) -> Any:
    grad = grad[..., None] if vector else grad
    if left:
        return solve_adjoint(a, lu, pivots, grad)
    # X a = b has the adjoint X^H: solve a gB^H = g^H.
    return adjoint(_solve_forward(a, lu, pivots, adjoint(grad)))


def _solve_forward(a: Any, lu: Any, pivots: Any, b: Any) -> Any:
    shape = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = jnp.broadcast_to(a, shape + a.shape[-2:]), jnp.broadcast_to(b, shape + b.shape[-2:])
    lu = jnp.broadcast_to(lax.stop_gradient(lu), a.shape)
    permutation = jnp.broadcast_to(permutation_of(pivots, lu.shape[-1]), shape + lu.shape[-1:])
    return lax.custom_linear_solve(
        lambda x: mul(a, x), b, lambda _, y: _lu_solve(lu, permutation, y), lambda _, y: _lu_solve_adjoint(lu.conj(), permutation, y)
    )


def _solve_grad_b(grad0: Any, self: Any, result: Any, LU: Any, pivots: Any, left: bool) -> Any:
    vector = result.ndim == 1 or (self.ndim - 1 == result.ndim)
    made = _solve_other(grad0, self, LU, pivots, left, vector)
    return made[..., 0] if vector else made


def _solve_grad_a(grad0: Any, self: Any, result: Any, LU: Any, pivots: Any, left: bool) -> Any:
    vector = result.ndim == 1 or (self.ndim - 1 == result.ndim)
    gb = _solve_other(grad0, self, LU, pivots, left, vector)
    x = result[..., None] if vector else result
    return -mul(gb, adjoint(x)) if left else -mul(adjoint(x), gb)


def _solve_shapes(a: Aval, b: Aval, left: bool) -> None:
    name = "linalg.solve"
    check_float(name, a)
    check_square(name, a)
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type {dtypes.of(a.dtype).title} and B of type "
            f"{dtypes.of(b.dtype).title} instead"
        )
    if is_vector(a, b):
        if a.shape[-1] != b.shape[-1]:
            raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation AX = B ({a.shape[-2]}x{a.shape[-1]} and {b.shape[-1]}x1)")
        return
    check_matrix(name, b, "B")
    check_equation(name, a, b, left)


def check_equation(name: str, a: Any, b: Any, left: bool) -> None:
    """RuntimeError where a X = b (X a = b) has no shape."""
    if a.shape[-2] != b.shape[-2 if left else -1]:
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {equation} ({a.shape[-2]}x{a.shape[-1]} and {b.shape[-2]}x{b.shape[-1]})"
        )


_SOLVE_GRADS = {"self": _solve_grad_a, "other": _solve_grad_b}
op("linalg_solve_ex(Tensor self, Tensor other, *, bool left=True)", results=("result", "LU", "pivots", "info"), node="LinalgSolveExBackward0",
   grads=_SOLVE_GRADS, validate=_solve_shapes, **PRIVATE)(_solve)  # fmt: skip
op("linalg_solve(Tensor self, Tensor other, *, bool left=True)", results=("result", "LU", "pivots"), node="LinalgSolveExBackward0",
   grads=_SOLVE_GRADS, validate=_solve_shapes, check=_failure("torch.linalg.solve", "The solver failed because the input matrix is singular."),
   **PRIVATE)(_checked(_solve))  # fmt: skip


def _inverse(a: Any) -> tuple[Any, Any]:
    lu, _, permutation = _lu(a)
    return _lu_solve(lu, permutation, jnp.broadcast_to(_eye(a), a.shape)), _zero_pivot(lu)


_INVERSE_GRADS = {"self": lambda grad, inverse: -mul(adjoint(inverse), mul(grad, adjoint(inverse)))}
op("linalg_inv_ex(Tensor self)", results=("inverse", "info"), grads=_INVERSE_GRADS, validate=_square_float("linalg.inv"), **PRIVATE)(_inverse)
for _name, _public in (("linalg_inv", "linalg.inv"), ("linalg_inv_ex_checked", "linalg.inv_ex")):
    op(f"{_name}(Tensor self)", results=("inverse",), node="LinalgInvExBackward0", grads=_INVERSE_GRADS, validate=_square_float("linalg.inv"),
       check=_failure(_public, _SINGULAR_INVERSE), **PRIVATE)(_checked(_inverse))  # fmt: skip


# ---------------------------------------------------------------------- triangular equations


def _triangular_shapes(a: Aval, b: Aval, upper: bool, left: bool, unitriangular: bool) -> None:
    name = "linalg.solve_triangular"
    check_square(name, a)
    check_matrix(name, b, "B")
    check_equation(name, a, b, left)
    check_float(name, a)


def _triangular_b(grad: Any, self: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    return triangular(self, grad, not upper, left, conjugate=True, unit=unitriangular)


def _triangular_a(grad: Any, self: Any, result: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    gb = _triangular_b(grad, self, upper, left, unitriangular)
    ga = -mul(gb, adjoint(result)) if left else -mul(adjoint(result), gb)
    offset = 1 if unitriangular else 0
    return jnp.triu(ga, offset) if upper else jnp.tril(ga, -offset)


@op("linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)", validate=_triangular_shapes,
    grads={"self": _triangular_a, "B": _triangular_b}, **PRIVATE)  # fmt: skip
def solve_triangular(a: Any, b: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    """The solution X of A X = B (X A = B unless left), A being triangular."""
    return triangular(a, b.astype(a.dtype), not upper, left, unit=unitriangular)


# ---------------------------------------------------------------------- determinants


def _parity(pivots: Any) -> Any:
    """+1 or -1: the sign of the exchanges."""
    moved = (pivots != jnp.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)).sum(-1)
    return 1 - 2 * (moved % 2)


def _without_zero_pivots(lu: Any) -> Any:
    d = _diagonal(lu)
    return _with_diagonal(lu, jnp.where(d == 0, jnp.asarray(jnp.finfo(lu.dtype).eps, lu.dtype), d))


def _inverse_adjoint_times(a: Any, lu: Any, pivots: Any, factor: Any) -> Any:
    return solve_adjoint(a, lu, pivots, factor[..., None, None] * jnp.broadcast_to(_eye(a), a.shape))


def _det_grad(grad0: Any, self: Any, result: Any, LU: Any, pivots: Any) -> Any:
    return _inverse_adjoint_times(self, _without_zero_pivots(LU), pivots, grad0 * result.conj())


@op("linalg_det(Tensor self)", results=("result", "LU", "pivots"), grads={"self": _det_grad}, validate=_square_float("linalg.det"), **PRIVATE)
def linalg_det(a: Any) -> Any:
    """The product of the eigenvalues."""
    lu, pivots, _ = _lu(a)
    return jnp.prod(_diagonal(lu), -1) * _parity(pivots).astype(a.dtype), lu, pivots


def _slogdet_grad(grad0: Any, grad1: Any, self: Any, sign: Any, LU: Any, pivots: Any) -> Any:
    factor = grad1
    if jnp.iscomplexobj(self):
        factor = lax.complex(grad1, -(grad0.conj() * sign).imag)
    return _inverse_adjoint_times(self, LU, pivots, factor)


@op("linalg_slogdet(Tensor self)", results=("sign", "logabsdet", "LU", "pivots"), grads={"self": _slogdet_grad},
    validate=_square_float("linalg.slogdet"), **PRIVATE)  # fmt: skip
def linalg_slogdet(a: Any) -> Any:
    """The determinant's sign (for complex matrices its phase) and the logarithm of its absolute value."""
    lu, pivots, _ = _lu(a)
    d = _diagonal(lu)
    sign = jnp.prod(jnp.sign(d), -1) * _parity(pivots).astype(a.dtype)
    return sign, jnp.sum(jnp.log(jnp.abs(d)), -1), lu, pivots


# ---------------------------------------------------------------------- LU as a result


def _unpack(lu: Any) -> tuple[Any, Any]:
    rows, columns = lu.shape[-2:]
    k = min(rows, columns)
    lower = jnp.tril(lu[..., :, :k], -1) + jnp.eye(rows, k, dtype=lu.dtype)
    return lower, jnp.triu(lu[..., :k, :])


def _lu_grad(permutation: Any, lower: Any, upper: Any, gl: Any, gu: Any) -> Any:
    """The gradient of P L U, for any shape: the square part by its triangles, what is beyond it by the equation of its rows or
    columns."""
    k = lower.shape[-1]
    l1, u1 = lower[..., :k, :], upper[..., :, :k]
    gl1, gl2 = gl[..., :k, :], gl[..., k:, :]
    gu1, gu2 = gu[..., :, :k], gu[..., :, k:]
    inner = jnp.tril(mul(adjoint(l1), gl1), -1) + jnp.triu(mul(gu1, adjoint(u1)))
    if gl2.shape[-2]:
        inner = inner - jnp.triu(mul(adjoint(lower[..., k:, :]), gl2))
    if gu2.shape[-1]:
        inner = inner - jnp.tril(mul(gu2, adjoint(upper[..., :, k:])), -1)

    def from_left(x: Any) -> Any:
        return triangular(l1, x, True, conjugate=True, unit=True)

    def from_right(x: Any) -> Any:
        return triangular(u1, x, False, left=False, conjugate=True)

    made = from_right(from_left(inner))
    if gl2.shape[-2]:
        made = jnp.concatenate([made, from_right(gl2)], -2)
    if gu2.shape[-1]:
        made = jnp.concatenate([made, from_left(gu2)], -1)
    inverse = jnp.argsort(permutation, -1)
    return jnp.take_along_axis(made, jnp.broadcast_to(inverse[..., None], (*made.shape[:-1], 1)).astype(jnp.int32), -2)


def _plain(name: str) -> Callable[..., None]:
    def validate(a: Aval, *rest: Any, **statics: Any) -> None:
        if a.ndim < 2:
            raise RuntimeError(f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(a.shape)} instead")
        if not dtypes.is_float(np.dtype(a.dtype)):
            raise NotImplementedError(f"\"lu_cpu\" not implemented for '{dtypes.of(np.dtype(a.dtype)).title}'")

    return validate


def _lu_factor_grad(grad0: Any, LU: Any, pivots: Any) -> Any:
    lower, upper = _unpack(LU)
    k = lower.shape[-1]
    return _lu_grad(permutation_of(pivots, LU.shape[-2]), lower, upper, jnp.tril(grad0[..., :, :k], -1), jnp.triu(grad0[..., :k, :]))


def _lu_factor(a: Any) -> tuple[Any, Any, Any]:
    lu, pivots, _ = _lu(a)
    return lu, pivots, _zero_pivot(lu)


op("linalg_lu_factor_ex(Tensor self)", results=("LU", "pivots", "info"), grads={"self": _lu_factor_grad}, validate=_plain("linalg.lu_factor"),
   **PRIVATE)(_lu_factor)  # fmt: skip
op("linalg_lu_factor(Tensor self)", results=("LU", "pivots"), node="LinalgLuFactorExBackward0", grads={"self": _lu_factor_grad},
   validate=_plain("linalg.lu_factor"), check=_failure("torch.linalg.lu_factor", _ZERO_PIVOT, RuntimeError), **PRIVATE)(_checked(_lu_factor))  # fmt: skip


@op("permutation_matrix(Tensor permutation, dtype dtype)", differentiable=False, **PRIVATE)
def permutation_matrix(permutation: Any, dtype: Any) -> Any:
    """The matrix that puts rows in the order that LU's pivots took them from."""
    rows = permutation.shape[-1]
    return (permutation[..., None, :] == jnp.arange(rows, dtype=permutation.dtype)[:, None]).astype(dtype)


@op("linalg_lu(Tensor self)", results=("permutation", "L", "U"), validate=_plain("linalg.lu"), **PRIVATE,
    grads={"self": lambda grad1, grad2, permutation, L, U: _lu_grad(permutation, L, U, grad1, grad2)})  # fmt: skip
def linalg_lu(a: Any) -> Any:
    """A permutation, a lower triangle with ones and an upper triangle whose product is the matrix."""
    lu, _, permutation = _lu(a)
    return (permutation.astype(jnp.int32), *_unpack(lu))


@op("lu_unpack(Tensor LU_data, Tensor LU_pivots)", results=("permutation", "L", "U"), linear=("LU_data",), **PRIVATE)
def lu_unpack(lu: Any, pivots: Any) -> Any:
    """The permutation and the triangles that lu_factor returned in one matrix."""
    return (permutation_of(pivots, lu.shape[-2]).astype(jnp.int32), *_unpack(lu))


def _lu_solve_shapes(lu: Aval, pivots: Aval, b: Aval, left: bool, adjoint: bool) -> None:
    name = "linalg.lu_solve"
    check_float(name, lu)
    check_square(name, lu)
    check_matrix(name, b, "B")
    if pivots.shape[-1:] != lu.shape[-1:]:
        raise RuntimeError(f"{name}: Number of pivots per batch should be same as the dimension of the matrix")
    check_equation(name, lu, b, left)


@op("linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False)", validate=_lu_solve_shapes, **PRIVATE)
def linalg_lu_solve(lu: Any, pivots: Any, b: Any, left: bool, adjoint: bool) -> Any:
    """The solution X of A X = B (A^H X = B, X A = B) by the decomposition of A."""
    batch = jnp.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    order = jnp.broadcast_to(permutation_of(pivots, lu.shape[-1]), batch + lu.shape[-1:])
    lu, b = jnp.broadcast_to(lu, batch + lu.shape[-2:]), jnp.broadcast_to(b, batch + b.shape[-2:])
    turned = b if left else jnp.swapaxes(b, -2, -1).conj()
    x = (_lu_solve_adjoint if adjoint == left else _lu_solve)(lu, order, turned)
    return x if left else jnp.swapaxes(x, -2, -1).conj()


# ---------------------------------------------------------------------- eigenvalues


def _over_differences(x: Any, differences: Any) -> Any:
    """x / differences, 0 where both vanish: what does not depend on the vectors may have equal values."""
    nothing = (differences == 0) & (x == 0)
    return jnp.where(nothing, 0, x) / jnp.where(nothing, 1, differences).astype(x.dtype)


def _eigh(a: Any, upper: bool) -> tuple[Any, Any, Any]:
    vectors, values = lax.linalg.eigh(adjoint(a) if upper else a, lower=True, symmetrize_input=False)
    failed = jnp.isnan(values).any(-1)
    return values, vectors, jnp.where(failed, jnp.int32(max(a.shape[-1] - 1, 1)), jnp.int32(0))


def _eigh_grad(grad0: Any, grad1: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    v = eigenvectors
    differences = _with_diagonal(eigenvalues[..., None, :] - eigenvalues[..., :, None], jnp.ones_like(eigenvalues))
    # The eigenvectors turn by an element of the unitary group: only the skew part can be meant.
    inner = _over_differences(_skew(mul(adjoint(v), grad1)) / 2, differences)
    return mul(v, _with_diagonal(inner, grad0), adjoint(v))


def _eigh_shapes(a: Aval, upper: bool) -> None:
    check_square("linalg.eigh", a)
    if not dtypes.is_float(np.dtype(a.dtype)) or a.dtype.itemsize < 4:
        raise NotImplementedError(f"\"linalg_eigh_cpu\" not implemented for '{dtypes.of(np.dtype(a.dtype)).title}'")


@op("linalg_eigh(Tensor self, bool upper)", results=("eigenvalues", "eigenvectors"), grads={"self": _eigh_grad}, validate=_eigh_shapes,
    check=_failure("linalg.eigh", _ILL_CONDITIONED), **PRIVATE)  # fmt: skip
def linalg_eigh(a: Any, upper: bool) -> Any:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices given by one triangle."""
    return _checked(_eigh)(a, upper=upper)


@op("linalg_eigvalsh(Tensor self, bool upper)", differentiable=False, validate=_eigh_shapes,
    check=_failure("linalg.eigh", _ILL_CONDITIONED), **PRIVATE)  # fmt: skip
def linalg_eigvalsh(a: Any, upper: bool) -> Any:
    """The eigenvalues alone, where no gradient is wanted."""
    values, _, info = _eigh(a, upper)
    return values, _first_failure(info)


def _eig_grad(grad0: Any, grad1: Any, eigenvalues: Any, eigenvectors: Any) -> Any:
    v = eigenvectors
    product = mul(adjoint(v), grad1)
    product = product - mul(adjoint(v), v * _diagonal(product).real[..., None, :].astype(v.dtype))
    differences = _with_diagonal(eigenvalues[..., None, :] - eigenvalues[..., :, None], jnp.ones_like(eigenvalues))
    inner = _with_diagonal(_over_differences(product, differences.conj()), grad0)
    return jnp.linalg.solve(adjoint(v), mul(inner, adjoint(v)))


def _eig_shapes(a: Aval) -> None:
    check_square("linalg.eig", a)
    check_float("linalg.eig", a)


def _not_finite(offender: int) -> Exception:
    return RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")


@op("linalg_eig(Tensor self)", results=("eigenvalues", "eigenvectors"), grads={"self": _eig_grad}, validate=_eig_shapes, check=_not_finite, **PRIVATE)
def linalg_eig(a: Any) -> Any:
    """Complex eigenvalues and eigenvectors of length 1."""
    values, vectors = lax.linalg.eig(a, compute_left_eigenvectors=False)
    return values, vectors, _first_failure((~jnp.isfinite(a)).any().astype(jnp.int32))


# ---------------------------------------------------------------------- singular values


def _skew(x: Any) -> Any:
    return x - adjoint(x)


def _svd_grad(grad0: Any, grad1: Any, grad2: Any, U: Any, S: Any, Vh: Any) -> Any:
    m, n, k = U.shape[-2], Vh.shape[-1], S.shape[-1]
    u, vh, gu, gvh = U[..., :, :k], Vh[..., :k, :], grad0[..., :, :k], grad2[..., :k, :]
    squares = S * S
    differences = _with_diagonal(squares[..., None, :] - squares[..., :, None], jnp.ones_like(S))
    by_row, by_column = S[..., :, None].astype(u.dtype), S[..., None, :].astype(u.dtype)
    uhgu, vhgv = mul(adjoint(u), gu), mul(vh, adjoint(gvh))
    inner = _over_differences(_skew(uhgu), differences) * by_column + by_row * _over_differences(_skew(vhgv), differences)
    diagonal = grad1.astype(u.dtype)
    if jnp.iscomplexobj(u):
        diagonal = diagonal + _over_differences(_diagonal(_skew(uhgu)), 2 * S)
    inner = _with_diagonal(inner, diagonal)
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


@op("linalg_svd(Tensor self, bool full_matrices)", results=("U", "S", "Vh"), grads={"self": _svd_grad}, validate=_matrix_float("linalg.svd"),
    check=_failure("linalg.svd", _NOT_FINITE), **PRIVATE)  # fmt: skip
def linalg_svd(a: Any, full_matrices: bool) -> Any:
    """Singular vectors and values, descending."""
    u, s, vh = jnp.linalg.svd(a, full_matrices=full_matrices)
    return u, s, vh, _first_failure(_svd_info(a))


@op("linalg_svdvals(Tensor self)", differentiable=False, validate=_matrix_float("linalg.svd"), check=_failure("linalg.svd", _NOT_FINITE), **PRIVATE)
def linalg_svdvals(a: Any) -> Any:
    """The singular values alone, where no gradient is wanted."""
    return jnp.linalg.svd(a, compute_uv=False), _first_failure(_svd_info(a))


# ---------------------------------------------------------------------- QR


def _qr_square_grad(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    inner = jnp.triu(mul(gr, adjoint(r)) - mul(adjoint(q), gq))
    inner = inner + adjoint(inner)
    inner = _with_diagonal(inner, _diagonal(inner) / 2)
    return triangular(r, gq + mul(q, inner), False, left=False, conjugate=True)


def _qr_grad(grad0: Any, grad1: Any, Q: Any, R: Any, mode: str) -> Any:
    m, n = Q.shape[-2], R.shape[-1]
    if mode == "r":
        raise RuntimeError("The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, mode='reduced')")
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    if m >= n:
        return _qr_square_grad(grad0, grad1, Q, R)
    # The first columns make Q; the others are Q times their part of R.
    beyond, g_beyond = R[..., :, m:], grad1[..., :, m:]
    gq = grad0 + mul(Q, mul(beyond, adjoint(g_beyond)))
    return jnp.concatenate([_qr_square_grad(gq, grad1[..., :, :m], Q, R[..., :, :m]), mul(Q, g_beyond)], -1)


@op("linalg_qr(Tensor self, str mode)", results=("Q", "R"), grads={"self": _qr_grad}, validate=_matrix_float("linalg.qr"), **PRIVATE)
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


def _pinv_shapes(a: Aval, **statics: Any) -> None:
    if a.ndim < 2 or not dtypes.is_float(np.dtype(a.dtype)) or a.dtype.itemsize < 4:
        raise RuntimeError(
            f"linalg.pinv({dtypes.of(np.dtype(a.dtype)).title}{{{list(a.shape)}}}): expected a tensor with 2 or more dimensions of float, double, "
            "cfloat or cdouble types"
        )


def _reciprocal(s: Any, limit: Any) -> Any:
    return jnp.where(jnp.abs(s) > limit, 1 / jnp.where(s == 0, 1, s), 0)


@op("linalg_pinv(Tensor self, any atol, any rtol, bool hermitian)", grads={"self": _pinv_grad}, validate=_pinv_shapes, **PRIVATE)
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


@op("linalg_matrix_rank(Tensor self, any atol, any rtol, bool hermitian)", differentiable=False, **PRIVATE)
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
    if b.ndim < 2 or a.shape[-2] != b.shape[-2]:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size(-2)")
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"{name}: Expected input and other to have the same dtype, but got input's dtype {dtypes.of(a.dtype).title} and other's dtype "
            f"{dtypes.of(b.dtype).title}"
        )


@op("linalg_lstsq(Tensor self, Tensor B, any rcond, str driver)", results=("solution", "residuals", "rank", "singular_values", "pinverse"),
    grads={"self": _lstsq_a, "B": _lstsq_b}, validate=_lstsq_shapes, **PRIVATE)  # fmt: skip
def linalg_lstsq(a: Any, b: Any, rcond: float | None, driver: str) -> Any:
    """The solution of least squares (of least norm where there are several), by the pseudo-inverse."""
    m, n = a.shape[-2:]
    u, s, vh = jnp.linalg.svd(a, full_matrices=False)
    limit = tolerance(s, a.shape, None, rcond)
    pinverse = mul(adjoint(vh) * _reciprocal(s, limit)[..., None, :].astype(a.dtype), adjoint(u))
    solution = mul(pinverse, b)
    real = s.dtype
    difference = mul(a, solution) - b
    residuals = jnp.sum((difference * difference.conj()).real, -2) if m > n else jnp.zeros((0,), real)
    rank = jnp.zeros((0,), jnp.int64) if driver == "gels" else jnp.sum(s > limit, -1, dtype=jnp.int64)
    values = s if driver in ("gelsd", "gelss") else jnp.zeros((0,), real)
    return solution, residuals, rank, values, pinverse


# ---------------------------------------------------------------------- functions of matrices


@op("matrix_power_zero(Tensor self)", node="CopyBackwards", grads={"self": lambda grad: jnp.zeros_like(grad)}, **PRIVATE)
def matrix_power_zero(a: Any) -> Any:
    """The identity in the shape of `self`."""
    return jnp.broadcast_to(_eye(a), a.shape)


def _matrix_exp(a: Any) -> Any:
    return jax.scipy.linalg.expm(a, max_squarings=48) if a.size else a


def _matrix_exp_grad(grad: Any, self: Any) -> Any:
    """The upper right block of exp [[A^H, G], [0, A^H]] (N. Higham, "Functions of Matrices", 2008, section 3.1)."""
    n = self.shape[-1]
    ah = adjoint(self)
    top, bottom = jnp.concatenate([ah, grad], -1), jnp.concatenate([jnp.zeros_like(ah), ah], -1)
    return _matrix_exp(jnp.concatenate([top, bottom], -2))[..., :n, n:]


@op("linalg_matrix_exp(Tensor self)", grads={"self": _matrix_exp_grad}, validate=_square_float("linalg.matrix_exp"), **PRIVATE)
def linalg_matrix_exp(a: Any) -> Any:
    """The exponential of a matrix."""
    return _matrix_exp(a)


def _norm(a: Any, p: Any) -> Any:
    if p == "fro":
        return jnp.sqrt(jnp.sum(jnp.square(jnp.abs(a)), (-2, -1)))
    if p == "nuc":
        return jnp.sum(jnp.linalg.svd(a, compute_uv=False), -1)
    sums = jnp.sum(jnp.abs(a), -2 if abs(p) == 1 else -1)
    return sums.max(-1) if p > 0 else sums.min(-1)


@op("linalg_cond(Tensor self, any p)", node="NanToNumBackward0", **PRIVATE)
def linalg_cond(a: Any, p: Any) -> Any:
    """The product of the norms of a matrix and its inverse; infinity for a singular matrix."""
    product = _norm(a, p) * _norm(_inverse(a)[0], p)
    return jnp.where(jnp.isnan(product), jnp.inf, product)
