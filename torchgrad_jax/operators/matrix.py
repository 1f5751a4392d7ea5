"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_products, promotion
from torchgrad_jax.declaration.converting import check_expands, convert, where, zeros_like
from torchgrad_jax.declaration.operands import MATRICES_UNLIKE
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.operators.kernels import loops, numpy_cross
from torchgrad_jax.operators.reduction import wrap_dims
from torchgrad_jax.runtime.value import Aval, aval_of

# XLA multiplies float32 in lower precision on some accelerators; PyTorch does not.
PRECISION = lax.Precision.HIGHEST


def dot(x: Any, y: Any) -> Any:
    """The product of two matrices, in full precision."""
    return lax.dot(x, y, precision=PRECISION)


def adjoint(m: Any) -> Any:
    """A matrix transposed and conjugated; each one of a batch."""
    turned = lax.transpose(m, (*range(m.ndim - 2), m.ndim - 1, m.ndim - 2))
    return lax.conj(turned) if m.dtype.kind == "c" else turned


def lower_triangle(x: Any, diagonal: int = 0) -> Any:
    """The elements on and below a diagonal, zeros above it. Its mask is made of one row and one column: the interpreter has it once for all."""
    rows, columns = places(x)
    return where(rows + diagonal >= columns, x, 0)


def upper_triangle(x: Any, diagonal: int = 0) -> Any:
    """The elements on and above a diagonal, zeros below it."""
    rows, columns = places(x)
    return where(rows + diagonal <= columns, x, 0)


def places(x: Any) -> tuple[Any, Any]:
    """The number of each row, as a column, and that of each column."""
    return lax.iota(np.int32, x.shape[-2])[:, None], lax.iota(np.int32, x.shape[-1])


def _of_numbers(kernel: str, validate: Callable[..., None]) -> Callable[..., None]:
    """`validate`, and then the refusal of booleans by PyTorch's kernel of that name, which is not called for nothing."""

    def check(*avals: Any, **statics: Any) -> None:
        validate(*avals, **statics)
        a, b = avals[-2:]
        if a.dtype == b.dtype == np.bool_ and a.size and b.size:
            raise NotImplementedError(f"\"{kernel}\" not implemented for 'Bool'")

    return check


def _mm_shapes(a: Aval, b: Aval) -> None:
    if a.ndim != 2:
        raise RuntimeError("self must be a matrix")
    if b.ndim != 2:
        raise RuntimeError("mat2 must be a matrix")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
        )  # fmt: skip


@op("mm(Tensor self, Tensor mat2)", multilinear=True, promote="same", validate=_of_numbers("addmm_impl_cpu_", _mm_shapes),
    grads={"self": lambda grad, mat2: dot(grad, adjoint(mat2)), "mat2": lambda grad, self: dot(adjoint(self), grad)},
    attributes="self_sym_sizes mat2_sym_sizes", unlike=MATRICES_UNLIKE, numpy=numpy_products.multiplied,
    numpy_grads=numpy_products.gradients_of_product)  # fmt: skip
def mm(x: Any, y: Any) -> Any:
    """The product of two matrices."""
    return dot(x, y)


def _bmm_shapes(a: Aval, b: Aval) -> None:
    if a.ndim != 3:
        raise RuntimeError("batch1 must be a 3D tensor")
    if b.ndim != 3:
        raise RuntimeError("batch2 must be a 3D tensor")
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a.shape[0]}, {a.shape[2]}] but got: [{b.shape[0]}, {b.shape[1]}]."
        )


def batched_dot(x: Any, y: Any) -> Any:
    """The products of two batches of matrices, in full precision."""
    return lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))), precision=PRECISION, preferred_element_type=x.dtype)


@op("bmm(Tensor self, Tensor mat2)", multilinear=True, promote="same", validate=_of_numbers("bmm", _bmm_shapes),
    grads={"self": lambda grad, mat2: batched_dot(grad, adjoint(mat2)), "mat2": lambda grad, self: batched_dot(adjoint(self), grad)},
    numpy=numpy_products.multiplied, numpy_grads=numpy_products.gradients_of_product)  # fmt: skip
def bmm(x: Any, y: Any) -> Any:
    """The products of two batches of matrices."""
    return batched_dot(x, y)


def _mv_shapes(a: Aval, b: Aval) -> None:
    if a.ndim != 2 or b.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {a.ndim}, {b.ndim}")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"size mismatch, got input ({a.shape[0]}), mat ({a.shape[0]}x{a.shape[1]}), vec ({b.shape[0]})")


@op("mv(Tensor self, Tensor vec)", multilinear=True, promote="same", validate=_of_numbers("addmv_impl_cpu", _mv_shapes),
    unlike="addmv input tensors must have the same dtype, but got {b.title}, {a.title}, and {b.title}",
    grads={"self": lambda grad, vec: jnp.outer(grad, vec.conj()),
           "vec": lambda grad, self: jnp.matmul(adjoint(self), grad, precision=PRECISION)})  # fmt: skip
def mv(x: Any, y: Any) -> Any:
    """A matrix times a vector."""
    return jnp.matmul(x, y, precision=PRECISION)


def _dot_shapes(a: Aval, b: Aval) -> None:
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if a.shape != b.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{a.shape[0]}] and src [{b.shape[0]}] to have the same number of elements, "
            f"but got {a.shape[0]} and {b.shape[0]} elements respectively"
        )


_refuse_booleans = refusing("dot", "b")


def _check_dot_dtypes(a: Aval, b: Aval) -> None:
    if a.ndim != 1 or b.ndim != 1:
        _dot_shapes(a, b)
    if a.dtype != b.dtype:
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {dtypes.of(a.dtype).title} and {dtypes.of(b.dtype).title}")
    _dot_shapes(a, b)
    _refuse_booleans(a)


@op("dot(Tensor self, Tensor tensor)", multilinear=True, promote=None, validate=_check_dot_dtypes,
    grads={"self": lambda grad, tensor: grad * tensor.conj(), "tensor": lambda grad, self: grad * self.conj()})  # fmt: skip
def dot_(x: Any, y: Any) -> Any:
    """The inner product of two vectors, without conjugation."""
    return jnp.matmul(x, y, precision=PRECISION)


# ---------------------------------------------------------------------- a product added to a tensor
# beta and alpha hardly ever change from call to call, and 1 and 0 are worth their own programs.


def _times(x: Any, factor: Any) -> Any:
    return x if factor == 1 else x * jnp.asarray(factor, x.dtype)


def _conjugate(factor: Any) -> Any:
    return factor.conjugate()


def _plus(x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """beta * x + alpha * product; x is not looked at where beta is 0."""
    scaled = _times(product, alpha)
    return scaled if beta == 0 else _times(x, beta) + scaled


def _summed_in(x: Any) -> Any:
    return np.dtype(np.float32) if x.dtype.kind not in "iub" and x.dtype.itemsize < 4 else x.dtype


def _rounded_once(x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """What `_plus` says, where `product` has not been rounded to 16 bits yet."""
    wide = jnp.broadcast_to(x, product.shape).astype(product.dtype)
    return _plus(wide, product, beta, alpha).astype(x.dtype)


def _one_dtype(first: str, a: Aval, second: str, b: Aval) -> None:
    if a.dtype != b.dtype:
        raise RuntimeError(f"{first} and {second} must have the same dtype, but got {dtypes.of(a.dtype).title} and {dtypes.of(b.dtype).title}")


def _addmm_shapes(a: Aval, x: Aval, y: Aval, beta: Any, alpha: Any) -> None:
    for name, m in (("mat1", x), ("mat2", y)):
        if m.ndim != 2:
            raise RuntimeError(f"{name} must be a matrix, got {m.ndim}-D tensor")
    if x.shape[1] != y.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({x.shape[0]}x{x.shape[1]} and {y.shape[0]}x{y.shape[1]})")
    _one_dtype("mat1", x, "mat2", y)
    _one_dtype("self", a, "mat2", y)
    check_expands(a, (x.shape[0], y.shape[1]))


def _grad_self(grad: Any, beta: Any) -> Any:
    return zeros_like(grad) if beta == 0 else _times(grad, _conjugate(beta))


@op("addmm(Tensor self, Tensor mat1, Tensor mat2, *, any beta=1, any alpha=1)", multilinear=True, promote=None, inplace=True,
    validate=_of_numbers("addmm_impl_cpu_", _addmm_shapes),
    grads={"self": _grad_self, "mat1": lambda grad, mat2, alpha: _times(dot(grad, adjoint(mat2)), _conjugate(alpha)),
           "mat2": lambda grad, mat1, alpha: _times(dot(adjoint(mat1), grad), _conjugate(alpha))},
    attributes="mat1_sym_sizes mat2_sym_sizes", unlike=MATRICES_UNLIKE)  # fmt: skip
def addmm(x: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    """beta * self + alpha * (mat1 @ mat2)."""
    return _rounded_once(x, lax.dot(a, b, precision=PRECISION, preferred_element_type=_summed_in(x)), beta, alpha)


def _baddbmm_shapes(a: Aval, x: Aval, y: Aval, beta: Any, alpha: Any) -> None:
    _bmm_shapes(x, y)
    _one_dtype("batch1", x, "batch2", y)
    _one_dtype("self", a, "batch2", y)
    check_expands(a, (x.shape[0], x.shape[1], y.shape[2]))


@op("baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, any beta=1, any alpha=1)", multilinear=True, promote=None, inplace=True,
    validate=_of_numbers("baddbmm", _baddbmm_shapes),
    grads={"self": _grad_self, "batch1": lambda grad, batch2, alpha: _times(batched_dot(grad, adjoint(batch2)), _conjugate(alpha)),
           "batch2": lambda grad, batch1, alpha: _times(batched_dot(adjoint(batch1), grad), _conjugate(alpha))})  # fmt: skip
def baddbmm(x: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    """beta * self + alpha * (batch1 @ batch2)."""
    return _rounded_once(x, jnp.matmul(a, b, precision=PRECISION, preferred_element_type=_summed_in(x)), beta, alpha)


def _addbmm_shapes(a: Aval, x: Aval, y: Aval, beta: Any, alpha: Any) -> None:
    if x.ndim != 3:
        raise RuntimeError("batch1 must be a 3D tensor")
    if y.ndim != 3:
        raise RuntimeError("batch2 must be a 3D tensor")
    if x.shape[0] != y.shape[0]:
        raise RuntimeError(f"batch1 and batch2 must have same number of batches, got {x.shape[0]} and {y.shape[0]}")
    if x.shape[2] != y.shape[1]:
        raise RuntimeError(
            f"Incompatible matrix sizes for bmm ({x.shape[1]}x{x.shape[2]} and {y.shape[1]}x{y.shape[2]})"
        )  # fmt: skip
    _one_dtype("self", a, "mat2", y)
    _one_dtype("mat1", x, "mat2", y)
    check_expands(a, (x.shape[1], y.shape[2]))


def _spread(grad: Any, batch: Any) -> Any:
    return jnp.broadcast_to(grad, (batch.shape[0], *grad.shape))


@op("addbmm(Tensor self, Tensor batch1, Tensor batch2, *, any beta=1, any alpha=1)", multilinear=True, promote="same", inplace=True,
    validate=_of_numbers("addmm_impl_cpu_", _addbmm_shapes),
    grads={"self": _grad_self,
           "batch1": lambda grad, batch2, alpha: _times(batched_dot(_spread(grad, batch2), adjoint(batch2)), _conjugate(alpha)),
           "batch2": lambda grad, batch1, alpha: _times(batched_dot(adjoint(batch1), _spread(grad, batch1)), _conjugate(alpha))},
    attributes="batch1_sym_argsize_0 batch1_sym_argsize_1 batch2_sym_argsize_2")  # fmt: skip
def addbmm(x: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    """beta * self + alpha * (the sum over the batch of batch1 @ batch2)."""
    product = jnp.einsum("bij,bjk->ik", a, b, precision=PRECISION)
    return _plus(jnp.broadcast_to(x, product.shape), product, beta, alpha)


def _addmv_shapes(a: Aval, x: Aval, y: Aval, beta: Any, alpha: Any) -> None:
    if x.ndim != 2 or y.ndim != 1 or a.ndim > 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {a.ndim}, {x.ndim}, {y.ndim}")
    if x.shape[1] != y.shape[0] or a.size not in (1, x.shape[0]):
        raise RuntimeError(f"size mismatch, got input ({a.size}), mat ({x.shape[0]}x{x.shape[1]}), vec ({y.shape[0]})")


@op("addmv(Tensor self, Tensor mat, Tensor vec, *, any beta=1, any alpha=1)", multilinear=True, promote="same", inplace=True,
    validate=_of_numbers("addmv_impl_cpu", _addmv_shapes),
    grads={"self": _grad_self, "mat": lambda grad, vec, alpha: _times(jnp.outer(grad, vec.conj()), _conjugate(alpha)),
           "vec": lambda grad, mat, alpha: _times(jnp.matmul(adjoint(mat), grad, precision=PRECISION), _conjugate(alpha))})  # fmt: skip
def addmv(x: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    """beta * self + alpha * (mat @ vec)."""
    return _plus(jnp.broadcast_to(x, a.shape[:1]), jnp.matmul(a, b, precision=PRECISION), beta, alpha)


def _addr_shapes(a: Aval, x: Aval, y: Aval, beta: Any, alpha: Any) -> None:
    for name, v in (("vec1", x), ("vec2", y)):
        if v.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {v.ndim}-D")
    check_expands(a, (x.shape[0], y.shape[0]))
    specs = [aval_of((1,), v.dtype) for v in (a, x, y)]
    for name, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, complex):
            promotion.fitting(factor, promotion.result_type(specs))
        promotion.check_factor(name, factor, specs)


def _against(grad: Any, vector: Any) -> Any:
    return jnp.matmul(grad, convert(vector, grad.dtype).conj(), precision=PRECISION)


@op("addr(Tensor self, Tensor vec1, Tensor vec2, *, any beta=1, any alpha=1)", multilinear=True, promote=None, inplace=True, validate=_addr_shapes,
    grads={"self": _grad_self,
           "vec1": lambda grad, vec2, alpha: _times(_against(grad, vec2), _conjugate(alpha)),
           "vec2": lambda grad, vec1, alpha: _times(_against(grad.T, vec1), _conjugate(alpha))})  # fmt: skip
def addr(x: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    """beta * self + alpha * (the outer product of vec1 and vec2)."""
    dtype = promotion.result_type([aval_of((1,), np.dtype(v.dtype)) for v in (x, a, b)])
    x, a, b = (convert(v, dtype) for v in (x, a, b))
    return _plus(jnp.broadcast_to(x, (a.shape[0], b.shape[0])), a[:, None] * b[None, :], beta, alpha)


@op("vdot(Tensor self, Tensor other)", multilinear=True, promote=None, validate=_check_dot_dtypes,
    grads={"self": lambda grad, other: grad.conj() * other, "other": lambda grad, self: grad * self})  # fmt: skip
def vdot(x: Any, y: Any) -> Any:
    """The inner product of two vectors, the first conjugated."""
    return jnp.matmul(x.conj(), y, precision=PRECISION)


# ---------------------------------------------------------------------- einsum


def _label(i: int) -> str:
    # jax.numpy.einsum takes any letters.
    return chr(ord("a") + i) if i < 26 else chr(ord("A") + i - 26) if i < 52 else chr(0x3B1 + i - 52)


@op("einsum(Tensor[] operands, any subscripts, any output)", method=False, toplevel=False, promote="same")
def einsum(operands: list[Any], subscripts: tuple[tuple[int, ...], ...], output: tuple[int, ...]) -> Any:
    """The sum over all labels not in `output` of the product of the operands. A size of 1 meets any other."""
    sizes: dict[int, int] = {}
    for x, labels in zip(operands, subscripts, strict=True):
        for n, label in zip(x.shape, labels, strict=True):
            sizes[label] = n if sizes.get(label, 1) == 1 else sizes[label]
    arrays, texts = [], []
    for x, labels in zip(operands, subscripts, strict=True):
        narrow = tuple(d for d, label in enumerate(labels) if x.shape[d] == 1 and sizes[label] != 1)
        arrays.append(lax.squeeze(x, narrow))
        texts.append("".join(_label(label) for d, label in enumerate(labels) if d not in narrow))
    equation = ",".join(texts) + "->" + "".join(map(_label, output))
    return jnp.einsum(equation, *arrays, precision=PRECISION).astype(operands[0].dtype)


# ---------------------------------------------------------------------- products of vectors in space


def _cross_shapes(a: Aval, b: Aval, dim: int) -> None:
    if a.ndim != b.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    at = wrap_dims((dim,), a.ndim)[0]
    if a.shape[at] != 3 or b.shape[at] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {a.shape[at]} and {b.shape[at]}")
    refusing("cross", "b")(a)


def _cross(x: Any, y: Any, dim: int) -> Any:
    x, y = jnp.broadcast_arrays(x, y)
    return jnp.cross(x, y, axis=dim)


@op("linalg_cross(Tensor self, Tensor other, *, int dim=-1)", keeps_order=False, multilinear=True, method=False, toplevel=False, promote="same",
    validate=_cross_shapes,
    grads={"self": lambda grad, other, dim: _cross(other.conj(), grad, dim),
           "other": lambda grad, self, dim: _cross(grad, self.conj(), dim)},
    numpy=numpy_cross.cross, numpy_grads=numpy_cross.cross_grads)  # fmt: skip
def linalg_cross(x: Any, y: Any, dim: int) -> Any:
    """The vector product along a dimension of size 3."""
    return _cross(x, y, dim)


# ---------------------------------------------------------------------- a Hessian's inverse, from pairs of changes


@op("_lbfgs_direction(Tensor grad, Tensor scale, Tensor[] changes, Tensor[] steps, Tensor[] ro, Index count)",
    differentiable=False, method=False, toplevel=False, numpy=numpy_products.lbfgs_direction)  # fmt: skip
def lbfgs_direction(grad: Any, scale: Any, changes: list[Any], steps: list[Any], ro: list[Any], count: Any) -> tuple[Any, Any]:
    """The direction of an iteration of L-BFGS, and the factors of its pairs: the two loops of Nocedal and Wright, "Numerical Optimization" (2006),
    algorithm 7.4, over the first `count` pairs. What is behind them is left out, so that one program serves for several counts."""
    ys, ss, rs, there = jnp.stack(changes), jnp.stack(steps), jnp.stack(ro), jnp.arange(len(ro)) < count

    def newest_first(q: Any, pair: tuple[Any, ...]) -> tuple[Any, Any]:
        y, s, r, given = pair
        factor = dot(s, q) * r
        return lax.select(jnp.broadcast_to(given, q.shape), q - y * factor, q), factor

    def oldest_first(d: Any, pair: tuple[Any, ...]) -> tuple[Any, None]:
        y, s, r, given, factor = pair
        return lax.select(jnp.broadcast_to(given, d.shape), d + s * (factor - dot(y, d) * r), d), None

    q, factors = loops.scan(newest_first, -grad, (ys, ss, rs, there), reverse=True)
    return loops.scan(oldest_first, q * scale, (ys, ss, rs, there, factors))[0], factors


# ---------------------------------------------------------------------- of a sparse matrix: the places of its elements, and their values


def _sum_of_rows(values: Any, rows: Any, cols: Any, dense: Any, size: int) -> Any:
    found = jnp.zeros((size, dense.shape[1]), dense.dtype)
    if not values.size or not dense.size:
        return found
    taken = dense.at[cols].get(mode="promise_in_bounds")
    return found.at[rows].add(values[:, None] * taken, mode="drop")


def _grad_of_elements(grad: Any, rows: Any, cols: Any, dense: Any, size: int) -> Any:
    if not rows.size or not grad.size:
        return jnp.zeros(rows.shape, grad.dtype)
    return (grad.at[rows].get(mode="promise_in_bounds") * dense.conj().at[cols].get(mode="promise_in_bounds")).sum(1)


def _grad_of_factor(grad: Any, values: Any, rows: Any, cols: Any, dense_sym_sizes: tuple[int, ...], size: int) -> Any:
    return _sum_of_rows(values.conj(), cols, rows, grad, dense_sym_sizes[0])


@op("_sparse_product(Tensor values, Tensor rows, Tensor cols, Tensor dense, int size)", method=False, toplevel=False, node="SparseAddmmBackward0",
    grads={"values": _grad_of_elements, "dense": _grad_of_factor}, parts=("rows", "cols"))  # fmt: skip
def sparse_product(values: Any, rows: Any, cols: Any, dense: Any, size: int) -> Any:
    """The product of a sparse matrix of `size` rows, which has `values` at `rows` and `cols`, all in range, and a dense one. What is at one place
    twice is added."""
    return _sum_of_rows(values, rows, cols, dense, size)
