"""Cholesky and LU decompositions, and what is computed by them: solutions, inverses, determinants.

Formulas: M. Giles, "An extended collection of matrix derivative results for forward and reverse mode automatic
differentiation" (2008); for eigenvectors and singular vectors as PyTorch's documentation of the gauge conditions has them.
Backward keeps the decomposition rather than computing it again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import numpy_systems
from torchgrad_jax.declaration.converting import broadcast_shapes, where, zeros_like
from torchgrad_jax.declaration.memory_order import BY_SIDE, COLUMNS, Order, by_columns
from torchgrad_jax.declaration.operator import Together, op
from torchgrad_jax.operators.kernels import loops
from torchgrad_jax.operators.kernels.linalg_errors import (
    NOT_POSITIVE,
    SINGULAR_INVERSE,
    ZERO_PIVOT,
    check_equal_dtypes,
    check_float,
    check_kernel,
    check_matrix,
    check_pair,
    check_routine,
    check_square,
    checked_by_info,
    failure,
    in_single,
    square_float,
)
from torchgrad_jax.operators.matrix import PRECISION, lower_triangle, places, upper_triangle
from torchgrad_jax.runtime.value import Aval

PRIVATE = {"method": False, "toplevel": False}

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


def diagonal(x: Any) -> Any:
    """The diagonals of a batch of matrices: a slice, where JAX's function picks element by element."""
    *batch, rows, columns = x.shape
    if not x.size:
        return jnp.diagonal(x, axis1=-2, axis2=-1)
    last = (min(rows, columns) - 1) * (columns + 1)
    return lax.slice_in_dim(x.reshape(*batch, rows * columns), 0, last + 1, columns + 1, -1)


def identity(x: Any, n: int | None = None) -> Any:
    return jnp.eye(n or x.shape[-1], dtype=x.dtype)


def with_diagonal(x: Any, d: Any) -> Any:
    return where(jnp.eye(x.shape[-1], dtype=bool), d[..., None, :].astype(x.dtype), x)


def triangular(a: Any, b: Any, lower: bool, left: bool = True, transpose: bool = False, conjugate: bool = False, unit: bool = False) -> Any:
    """The solution X of op(a) X = b (X op(a) = b unless `left`), a being triangular; batches broadcast."""
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = jnp.broadcast_to(a, batch + a.shape[-2:]), jnp.broadcast_to(b, batch + b.shape[-2:])
    return lax.linalg.triangular_solve(
        a, b, left_side=left, lower=lower, transpose_a=transpose or conjugate, conjugate_a=conjugate, unit_diagonal=unit
    )


def _half_diagonal(x: Any) -> Any:
    """The lower triangle with half of the diagonal."""
    rows, columns = places(x)
    return where(rows == columns, x * 0.5, lower_triangle(x, -1))


# ---------------------------------------------------------------------- Cholesky


def _hermitian(a: Any, upper: bool) -> Any:
    """What the one triangle that is read stands for."""
    one = lower_triangle(adjoint(a) if upper else a)
    return one


def _failed(a: Any) -> tuple[Any, Any]:
    """What LAPACK leaves of a matrix that has no factor, and the order of the first leading minor that is not positive, by elimination.

    That are the factor's columns before that order, the pivot that is not positive, and what was given. Of a matrix that failed by rounding alone,
    which this elimination may get through, the order is that of the least pivot."""
    n = a.shape[-1]
    full = lower_triangle(a) + adjoint(lower_triangle(a, -1))
    at = jnp.arange(n)

    def step(k: Any, state: Any) -> Any:
        rest, columns, pivots = state
        pivot = rest[k, k].real
        root = where(pivot > 0, jnp.sqrt(pivot), 1).astype(rest.dtype)
        column = where(at > k, rest[:, k], 0) / root
        columns = where(at == k, where(at == k, root, column)[:, None], columns)
        return rest - jnp.outer(column, column.conj()), columns, where(at == k, pivot, pivots)

    _, columns, pivots = loops.fori_loop(0, n, step, (full, zeros_like(full), jnp.zeros(n, full.real.dtype)))
    bad = ~(pivots > 0)
    order = where(bad.any(), jnp.argmax(bad), jnp.argmin(pivots)).astype(jnp.int32)
    left = with_diagonal(full, where(at == order, pivots, diagonal(full).real))
    return lower_triangle(where(at < order, columns, left)), order + 1


def _cholesky(a: Any, upper: bool) -> tuple[Any, Any]:
    if not a.size:
        return a, jnp.zeros(a.shape[:-2], jnp.int32)
    lower = _hermitian(a, upper)
    factor = lax.linalg.cholesky(lower, symmetrize_input=False)
    failed = jnp.isnan(diagonal(factor).real).any(-1)
    eliminated = _failed
    for _ in range(a.ndim - 2):
        eliminated = jax.vmap(eliminated)

    def settle() -> tuple[Any, Any]:
        left, order = eliminated(lax.stop_gradient(lower))
        return where(failed[..., None, None], left, factor), where(failed, order, 0)

    factor, info = lax.cond(failed.any(), settle, lambda: (factor, jnp.zeros(failed.shape, jnp.int32)))
    return (adjoint(factor) if upper else factor), info


def _cholesky_grad(grad: Any, factor: Any, upper: bool) -> Any:
    lower = adjoint(factor) if upper else factor
    grad = adjoint(grad) if upper else grad
    phi = _half_diagonal(mul(adjoint(lower), grad))
    phi = (phi + adjoint(phi)) / 2
    left = triangular(lower, phi, True, transpose=True, conjugate=True)
    return triangular(lower, left, True, left=False)


def _old_cholesky_shapes(a: Aval, upper: bool) -> None:
    if a.size or a.ndim < 2:
        check_square("cholesky", a)
    check_routine("cholesky_cpu", a)


_NODE = "LinalgCholeskyExBackward0"
_CHOLESKY_GRADS = {"self": lambda grad, L, upper: _cholesky_grad(grad, L, upper)}
op("linalg_cholesky_ex(Tensor self, *, bool upper=False)", order=COLUMNS, results=("L", "info"), node=_NODE, grads=_CHOLESKY_GRADS,
   validate=square_float("linalg.cholesky", "cholesky_cpu"), numpy=numpy_systems.cholesky, numpy_vjp=numpy_systems.cholesky_vjp,
   **PRIVATE)(_cholesky)  # fmt: skip
for _name, _public, _node in (
    ("linalg_cholesky", "linalg.cholesky", _NODE), ("linalg_cholesky_ex_checked", "linalg.cholesky_ex", _NODE), ("cholesky", "cholesky", None),
):  # fmt: skip
    op(f"{_name}(Tensor self, *, bool upper=False)", order=COLUMNS, results=("L",), node=_node, grads=_CHOLESKY_GRADS,
       validate=square_float("linalg.cholesky", "cholesky_cpu") if _node else _old_cholesky_shapes, check=failure(_public, NOT_POSITIVE),
       numpy=numpy_systems.cholesky_checked, numpy_vjp=numpy_systems.cholesky_vjp, **PRIVATE)(checked_by_info(_cholesky))  # fmt: skip


def _by_triangle(b: Any, factor: Any, upper: bool) -> Any:
    lower = adjoint(factor) if upper else factor  # of which the other triangle is not read
    return triangular(lower, triangular(lower, b, True), True, transpose=True, conjugate=True)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _positive_solve(b: Any, factor: Any, upper: bool) -> Any:
    """The solution by one triangle of the factor. Its derivative is as if both had been read: so are PyTorch's gradients."""
    return _by_triangle(b, factor, upper)


@_positive_solve.defjvp
def _positive_solve_forward(upper: bool, primals: Any, tangents: Any) -> Any:
    (b, factor), (db, change) = primals, tangents
    x = _positive_solve(b, factor, upper)
    moved = mul(adjoint(change), mul(factor, x)) if upper else mul(change, mul(adjoint(factor), x))
    moved = moved + (mul(adjoint(factor), mul(change, x)) if upper else mul(factor, mul(adjoint(change), x)))
    return x, _by_triangle(db - moved, factor, upper)


def _of_factor(common: Any, factor: Any, upper: bool) -> Any:
    """The gradient of the factor of what is inverted, `common` being that of the inverse between two inverses. Both triangles
    are filled, as PyTorch fills them."""
    common = common + adjoint(common)
    return -mul(factor, common) if upper else -mul(common, factor)


def _cholesky_solve_factor(grad: Any, input2: Any, result: Any, upper: bool) -> Any:
    return _of_factor(mul(_positive_solve(grad, input2, upper), adjoint(result)), input2, upper)


def _cholesky_solve_shapes(b: Aval, factor: Aval, upper: bool) -> None:
    for name, x in (("b", b), ("u", factor)):
        if x.ndim < 2:
            raise RuntimeError(f"{name} should have at least 2 dimensions, but has {x.ndim} dimensions instead")
    check_pair("cholesky_solve", b, factor)
    check_kernel("cholesky_solve_cpu", b)


@op("cholesky_solve(Tensor self, Tensor input2, bool upper=False)", order=COLUMNS, validate=_cholesky_solve_shapes, **PRIVATE,
    shows=("self", "input2", "result"),
    grads={"self": lambda grad, self, input2, upper: _positive_solve(grad, input2, upper), "input2": _cholesky_solve_factor},
    numpy=numpy_systems.cholesky_solve, numpy_grads=numpy_systems.cholesky_solve_grads)  # fmt: skip
def cholesky_solve(b: Any, factor: Any, upper: bool) -> Any:
    """The solution X of A X = b, A given by its Cholesky factor."""
    return _positive_solve(b, factor, upper)


def _cholesky_inverse_shapes(a: Aval, upper: bool) -> None:
    check_square("cholesky_inverse", a)
    check_kernel("cholesky_inverse_out_cpu", a)


@op("cholesky_inverse(Tensor self, bool upper=False)", order=COLUMNS, validate=_cholesky_inverse_shapes,
    numpy=numpy_systems.cholesky_inverse, numpy_vjp=numpy_systems.cholesky_inverse_vjp,
    grads={"self": lambda grad, self, result, upper: _of_factor(mul(result, grad, result), self, upper)})  # fmt: skip
def cholesky_inverse(factor: Any, upper: bool) -> Any:
    """The inverse of the matrix of which `self` is the Cholesky factor."""
    return _positive_solve(jnp.broadcast_to(identity(factor), factor.shape), factor, upper)


# ---------------------------------------------------------------------- LU


def _zero_pivot(lu: Any) -> Any:
    """The number (from 1) of the first zero on U's diagonal; 0 for none."""
    zero = diagonal(lu) == 0
    return where(zero.any(-1), jnp.argmax(zero, -1) + 1, 0).astype(jnp.int32) if zero.shape[-1] else jnp.zeros(lu.shape[:-2], jnp.int32)


def _lu(a: Any) -> tuple[Any, Any, Any]:
    """LU, pivots as LAPACK counts them, and the permutation."""
    lu, pivots, permutation = lax.linalg.lu(a)
    return lu, pivots.astype(jnp.int32) + 1, permutation


def permutation_of(pivots: Any, rows: int) -> Any:
    """The permutation that a sequence of exchanges is."""
    return lax.linalg.lu_pivots_to_permutation(pivots - 1, rows)


def _rows_in_order(b: Any, order: Any) -> Any:
    """The rows of a batch of matrices in this order."""
    if b.ndim == 2 and b.size:
        return b.at[order].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return jnp.take_along_axis(b, jnp.broadcast_to(order[..., None], (*b.shape[:-1], 1)).astype(jnp.int32), -2)


def _lu_solve(lu: Any, permutation: Any, b: Any) -> Any:
    return triangular(lu, triangular(lu, _rows_in_order(b, permutation), True, unit=True), False)


def _lu_solve_adjoint(lu: Any, permutation: Any, b: Any) -> Any:
    x = triangular(lu, triangular(lu, b, False, conjugate=True), True, conjugate=True, unit=True)
    if x.ndim == 2 and x.size:
        return zeros_like(x).at[permutation].set(x, mode="promise_in_bounds", unique_indices=True, wrap_negative_indices=False)
    return _rows_in_order(x, jnp.argsort(permutation, -1))


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


@in_single
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


def _solve_grads(grad0: Any, A: Any, result: Any, LU: Any, pivots: Any, left: bool) -> dict[str, Any]:
    vector = result.ndim == 1 or (A.ndim - 1 == result.ndim)
    of_b = _solve_other(grad0, A, LU, pivots, left, vector)
    x = result[..., None] if vector else result
    return {"A": -mul(of_b, adjoint(x)) if left else -mul(adjoint(x), of_b), "other": of_b[..., 0] if vector else of_b}


def _solve_shapes(a: Aval, b: Aval, left: bool) -> None:
    name = "linalg.solve"
    check_float(name, a, low_precision=True)
    check_square(name, a)
    check_equal_dtypes(a, b, name, "A", "B")
    if not is_vector(a, b):
        check_matrix(name, b, "B")
        check_equation(name, a, b, left)
    elif a.shape[-1] != b.shape[-1]:
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation AX = B ({a.shape[-2]}x{a.shape[-1]} and {b.shape[-1]}x1)")
    check_routine("lu_cpu", a)


def check_equation(name: str, a: Any, b: Any, left: bool) -> None:
    """RuntimeError where a X = b (X a = b) has no shape."""
    if a.shape[-2] != b.shape[-2 if left else -1]:
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {equation} ({a.shape[-2]}x{a.shape[-1]} and {b.shape[-2]}x{b.shape[-1]})"
        )
    broadcast_shapes(b.shape[:-2], a.shape[:-2])


_SOLVE_GRADS = {name: Together(_solve_grads, name) for name in ("A", "other")}
op("linalg_solve_ex(Tensor A, Tensor other, *, bool left=True)", results=("result", "LU", "pivots", "info"), node="LinalgSolveExBackward0",
   order=BY_SIDE, grads=_SOLVE_GRADS, validate=_solve_shapes, numpy=numpy_systems.solve_ex, numpy_grads=numpy_systems.solve_grads,
   **PRIVATE)(_solve)  # fmt: skip
op("linalg_solve(Tensor A, Tensor other, *, bool left=True)", results=("result", "LU", "pivots"), node="LinalgSolveExBackward0",
   order=BY_SIDE, grads=_SOLVE_GRADS, validate=_solve_shapes, numpy=numpy_systems.solve, numpy_grads=numpy_systems.solve_grads,
   check=failure("torch.linalg.solve", "The solver failed because the input matrix is singular."),
   **PRIVATE)(checked_by_info(_solve))  # fmt: skip


def inverse_and_info(a: Any) -> tuple[Any, Any]:
    lu, _, permutation = _lu(a)
    return _lu_solve(lu, permutation, jnp.broadcast_to(identity(a), a.shape)), _zero_pivot(lu)


_INVERSE_GRADS = {"self": lambda grad, inverse: -mul(adjoint(inverse), mul(grad, adjoint(inverse)))}
op("linalg_inv_ex(Tensor self)", order=COLUMNS, results=("inverse", "info"), grads=_INVERSE_GRADS, validate=square_float("linalg.inv"),
   numpy=numpy_systems.inverse_ex, numpy_vjp=numpy_systems.inverse_vjp, **PRIVATE)(inverse_and_info)  # fmt: skip
for _name, _public in (("linalg_inv", "linalg.inv"), ("linalg_inv_ex_checked", "linalg.inv_ex")):
    op(f"{_name}(Tensor self)", order=COLUMNS,
       results=("inverse",), node="LinalgInvExBackward0", grads=_INVERSE_GRADS, validate=square_float("linalg.inv"), numpy=numpy_systems.inverse,
       numpy_vjp=numpy_systems.inverse_vjp, check=failure(_public, SINGULAR_INVERSE), **PRIVATE)(checked_by_info(inverse_and_info))  # fmt: skip


# ---------------------------------------------------------------------- triangular equations


def _triangular_shapes(a: Aval, b: Aval, upper: bool, left: bool, unitriangular: bool) -> None:
    name = "linalg.solve_triangular"
    check_square(name, a)
    check_matrix(name, b, "B")
    check_equation(name, a, b, left)
    check_kernel("triangular_solve_cpu", a)


def _triangular_b(grad: Any, self: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    return triangular(self, grad, not upper, left, conjugate=True, unit=unitriangular)


def _triangular_a(grad: Any, self: Any, result: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    gb = _triangular_b(grad, self, upper, left, unitriangular)
    ga = -mul(gb, adjoint(result)) if left else -mul(adjoint(result), gb)
    offset = 1 if unitriangular else 0
    return upper_triangle(ga, offset) if upper else lower_triangle(ga, -offset)


@op("linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)", validate=_triangular_shapes,
    order=COLUMNS, shows=("result",), grads={"self": _triangular_a, "B": _triangular_b},
    numpy=numpy_systems.triangular, numpy_grads=numpy_systems.triangular_grads, **PRIVATE)  # fmt: skip
def solve_triangular(a: Any, b: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    """The solution X of A X = B (X A = B unless left), A being triangular."""
    return triangular(a, b.astype(a.dtype), not upper, left, unit=unitriangular)


def _old_triangular_shapes(b: Aval, a: Aval, upper: bool, transpose: bool, unitriangular: bool) -> None:
    for name, x in (("b", b), ("A", a)):
        if x.ndim < 2:
            raise RuntimeError(f"torch.triangular_solve: Expected {name} to have at least 2 dimensions, but it has {x.ndim} dimensions instead")
    check_pair("triangular_solve", b, a)
    check_kernel("triangular_solve_cpu", a)


@op("_triangular_solve(Tensor self, Tensor A, bool upper, bool transpose, bool unitriangular)", node="TriangularSolveBackward0",
    order=Order(by_columns, by_columns), results=("solution", "cloned_coefficient"), keeps=("solution",),
    shows=("self", "A"), attributes="transpose unitriangular upper", validate=_old_triangular_shapes, numpy=numpy_systems.old_triangular,
    numpy_grads=numpy_systems.old_triangular_grads, **PRIVATE)  # fmt: skip
def triangular_solve(b: Any, a: Any, upper: bool, transpose: bool, unitriangular: bool) -> Any:
    """The solution X of A X = B (A^T X = B if transpose), A being triangular, and a copy of A."""
    turned = a.mT if transpose else a
    batch = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    turned, b = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (turned, b))
    return triangular(turned, b, upper == transpose, True, unit=unitriangular), a


# ---------------------------------------------------------------------- determinants


def _parity(pivots: Any) -> Any:
    """+1 or -1: the sign of the exchanges."""
    moved = (pivots != jnp.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype)).sum(-1)
    return 1 - 2 * (moved % 2)


def _without_zero_pivots(lu: Any) -> Any:
    d = diagonal(lu)
    return with_diagonal(lu, where(d == 0, jnp.asarray(jnp.finfo(lu.dtype).eps, lu.dtype), d))


def _inverse_adjoint_times(a: Any, lu: Any, pivots: Any, factor: Any) -> Any:
    return solve_adjoint(a, lu, pivots, factor[..., None, None] * jnp.broadcast_to(identity(a), a.shape))


def _det_grad(grad0: Any, A: Any, result: Any, LU: Any, pivots: Any) -> Any:
    if A.shape[-1] == 1:  # an element is its own determinant
        return grad0[..., None, None]
    return _inverse_adjoint_times(A, _without_zero_pivots(LU), pivots, grad0 * result.conj())


@op("linalg_det(Tensor A)", results=("result", "LU", "pivots"), grads={"A": _det_grad}, validate=square_float("linalg.det", "lu_cpu"),
    numpy=numpy_systems.det, numpy_vjp=numpy_systems.det_vjp, **PRIVATE)  # fmt: skip
@in_single
def linalg_det(a: Any) -> Any:
    """The product of the eigenvalues."""
    lu, pivots, _ = _lu(a)
    return jnp.prod(diagonal(lu), -1) * _parity(pivots).astype(a.dtype), lu, pivots


def _slogdet_grad(grad0: Any, grad1: Any, A: Any, sign: Any, LU: Any, pivots: Any) -> Any:
    factor = grad1
    if jnp.iscomplexobj(A):
        factor = lax.complex(grad1, -(grad0.conj() * sign).imag)
    return _inverse_adjoint_times(A, LU, pivots, factor)


@op("linalg_slogdet(Tensor A)", results=("sign", "logabsdet", "LU", "pivots"), grads={"A": _slogdet_grad},
    validate=square_float("linalg.slogdet"), numpy=numpy_systems.slogdet, numpy_vjp=numpy_systems.slogdet_vjp, **PRIVATE)  # fmt: skip
def linalg_slogdet(a: Any) -> Any:
    """The determinant's sign (for complex matrices its phase) and the logarithm of its absolute value."""
    lu, pivots, _ = _lu(a)
    d = diagonal(lu)
    sign = jnp.prod(jnp.sign(d), -1) * _parity(pivots).astype(a.dtype)
    return sign, jnp.sum(jnp.log(jnp.abs(d)), -1), lu, pivots


# ---------------------------------------------------------------------- LU as a result


def _unpack(lu: Any) -> tuple[Any, Any]:
    rows, columns = lu.shape[-2:]
    k = min(rows, columns)
    lower = lower_triangle(lu[..., :, :k], -1) + jnp.eye(rows, k, dtype=lu.dtype)
    return lower, upper_triangle(lu[..., :k, :])


def _lu_grad(permutation: Any, lower: Any, upper: Any, gl: Any, gu: Any) -> Any:
    """The gradient of P L U, for any shape: the square part by its triangles, what is beyond it by the equation of its rows or
    columns."""
    k = lower.shape[-1]
    l1, u1 = lower[..., :k, :], upper[..., :, :k]
    gl1, gl2 = gl[..., :k, :], gl[..., k:, :]
    gu1, gu2 = gu[..., :, :k], gu[..., :, k:]
    inner = lower_triangle(mul(adjoint(l1), gl1), -1) + upper_triangle(mul(gu1, adjoint(u1)))
    if gl2.shape[-2]:
        inner = inner - upper_triangle(mul(adjoint(lower[..., k:, :]), gl2))
    if gu2.shape[-1]:
        inner = inner - lower_triangle(mul(gu2, adjoint(upper[..., :, k:])), -1)

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
        check_routine("lu_cpu", a)

    return validate


def _lu_factor_grad(grad0: Any, LU: Any, pivots: Any) -> Any:
    lower, upper = _unpack(LU)
    k = lower.shape[-1]
    return _lu_grad(permutation_of(pivots, LU.shape[-2]), lower, upper, lower_triangle(grad0[..., :, :k], -1), upper_triangle(grad0[..., :k, :]))


@in_single
def _lu_factor(a: Any) -> tuple[Any, Any, Any]:
    lu, pivots, _ = _lu(a)
    return lu, pivots, _zero_pivot(lu)


op("linalg_lu_factor_ex(Tensor self)", order=COLUMNS,
   results=("LU", "pivots", "info"), grads={"self": _lu_factor_grad}, validate=_plain("torch.lu_factor"),
   **PRIVATE)(_lu_factor)  # fmt: skip
op("linalg_lu_factor(Tensor self)", order=COLUMNS, results=("LU", "pivots"), node="LinalgLuFactorExBackward0", grads={"self": _lu_factor_grad},
   validate=_plain("torch.lu_factor"),
   check=failure("torch.linalg.lu_factor", ZERO_PIVOT, RuntimeError), **PRIVATE)(checked_by_info(_lu_factor))  # fmt: skip


@op("permutation_matrix(Tensor permutation, dtype dtype)", differentiable=False, **PRIVATE)
def permutation_matrix(permutation: Any, dtype: Any) -> Any:
    """The matrix that puts rows in the order that LU's pivots took them from."""
    rows = permutation.shape[-1]
    return (permutation[..., None, :] == jnp.arange(rows, dtype=permutation.dtype)[:, None]).astype(dtype)


@op("linalg_lu(Tensor self)", results=("L", "U", "permutation"), validate=_plain("linalg.lu"), **PRIVATE,
    grads={"self": lambda grad0, grad1, permutation, L, U: _lu_grad(permutation, L, U, grad0, grad1)})  # fmt: skip
@in_single
def linalg_lu(a: Any) -> Any:
    """A lower triangle with ones, an upper triangle and a permutation whose product is the matrix."""
    lu, _, permutation = _lu(a)
    return (*_unpack(lu), permutation.astype(jnp.int32))


@op("lu_unpack(Tensor LU_data, Tensor LU_pivots)", results=("L", "U", "permutation"), linear=("LU_data",), copies=("LU_pivots",), **PRIVATE)
def lu_unpack(lu: Any, pivots: Any) -> Any:
    """The triangles that lu_factor returned in one matrix, and the permutation."""
    return (*_unpack(lu), permutation_of(pivots, lu.shape[-2]).astype(jnp.int32))


def _lu_solve_shapes(lu: Aval, pivots: Aval, b: Aval, left: bool, adjoint: bool) -> None:
    name = "linalg.lu_solve"
    check_float("torch." + name, lu, low_precision=True)
    check_square("torch." + name, lu)
    check_equal_dtypes(lu, b, name, "LU", "B")
    if pivots.dtype != np.int32:
        raise RuntimeError(f"{name}: pivots should be a Tensor of scalar type torch.int32")
    check_matrix(name, b, "B")
    if pivots.shape[-1:] != lu.shape[-1:]:
        raise RuntimeError(f"{name}: Number of pivots per batch should be same as the dimension of the matrix")
    check_equation(name, lu, b, left)
    if pivots.shape != lu.shape[:-1]:
        raise RuntimeError(f"{name}: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape {list(pivots.shape)} instead")
    check_routine("linalg.lu_solve_cpu", lu)


@op("linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False)", order=BY_SIDE,
    validate=_lu_solve_shapes, keeps=("result",), shows=("LU", "pivots"), copies=("B",),
    **PRIVATE)  # fmt: skip
@in_single
def linalg_lu_solve(lu: Any, pivots: Any, b: Any, left: bool, adjoint: bool) -> Any:
    """The solution X of A X = B (A^H X = B, X A = B) by the decomposition of A."""
    batch = jnp.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    order = jnp.broadcast_to(permutation_of(pivots, lu.shape[-1]), batch + lu.shape[-1:])
    lu, b = jnp.broadcast_to(lu, batch + lu.shape[-2:]), jnp.broadcast_to(b, batch + b.shape[-2:])
    turned = b if left else jnp.swapaxes(b, -2, -1).conj()
    x = (_lu_solve_adjoint if adjoint == left else _lu_solve)(lu, order, turned)
    return x if left else jnp.swapaxes(x, -2, -1).conj()
