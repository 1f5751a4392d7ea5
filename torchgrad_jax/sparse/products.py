"""Products of matrices of which one is sparse, or both."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.sparse.arithmetic import add, taking_out
from torchgrad_jax.sparse.coordinates import coalesce, coordinates, host, in_layout, integers, sparse_dim
from torchgrad_jax.sparse.tensors import COO, SparseTensor, answer, is_sparse, of_coordinates, parts_of, with_values


@answer("mm", "spmm", "dsmm")
@taking_out
def mm(input: Any, mat2: Any) -> Tensor:
    """The product of two matrices of which one is sparse (a dense matrix), or both (a sparse one). RuntimeError where they do not fit."""
    check_tensors("mm", input=input, mat2=mat2)
    for i, t in enumerate((input, mat2), 1):
        if t._aval.ndim != 2:
            raise RuntimeError(f"addmm: Argument #{i + 1}: Expected dim 2, got {t._aval.ndim}: a product with a sparse matrix is one of matrices")
    if is_sparse(input) and is_sparse(mat2):
        return _of_two(input, mat2)
    if is_sparse(input):
        return _with_dense(input, mat2)
    return _with_dense(_turned(mat2), input.t(), mat2._aval.shape[0]).t()


def _turned(s: SparseTensor) -> SparseTensor:
    s = coordinates(s)
    indices, values = parts_of(s)
    return of_coordinates(indices.flip(0), values, s._aval.shape[::-1])


def _with_dense(s: SparseTensor, dense: Tensor, expected: int | None = None) -> Tensor:
    if s._aval.shape[1] != dense._aval.shape[0]:
        raise RuntimeError(
            f"addmm: Argument #3 (dense): Expected dim 0 size {s._aval.shape[1] if expected is None else expected}, got {dense._aval.shape[0]}"
        )
    s = coordinates(s)
    indices, values = parts_of(s)
    casting = per_thread.recorder.flags.casting
    if casting is not None:
        values, dense = casting.cast("mm", [values, dense])
    check_dtypes(values, dense)
    if values._aval.ndim != 1:
        raise RuntimeError(f"addmm: matrices of a sparse tensor must be of scalar elements, but values has {values._aval.ndim} dimensions")
    return call("_sparse_product", values, indices[0], indices[1], dense, s._aval.shape[0])


def check_tensors(function: str, **given: Any) -> None:
    """TypeError where one of the arguments of a function is no tensor."""
    for i, (name, t) in enumerate(given.items(), 1):
        if not isinstance(t, Tensor):
            raise TypeError(f"{function}(): argument '{name}' (position {i}) must be Tensor, not {type(t).__name__}")


def check_dtypes(a: Tensor, b: Tensor) -> None:
    """RuntimeError where they are not the same."""
    if a._aval.dtype != b._aval.dtype:
        raise RuntimeError(f"expected scalar type {a.dtype.title} but found {b.dtype.title}")


def _of_two(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    if a._aval.shape[1] != b._aval.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({_by(a)} and {_by(b)})")
    check_dtypes(a, b)
    layout, a, b = a.layout, coalesce(coordinates(a)), coalesce(coordinates(b))
    (ia, va), (ib, vb) = parts_of(a), parts_of(b)
    (rows, inner), (outer, cols) = host(ia), host(ib)
    # Each element of a row of the second matrix meets those of the first that are in the column of this number.
    begins = np.searchsorted(outer, np.arange(b._aval.shape[0] + 1))
    counts = (begins[1:] - begins[:-1])[inner]
    left = np.repeat(np.arange(len(inner)), counts)
    right = np.arange(len(left)) + np.repeat(begins[inner] - (np.cumsum(counts) - counts), counts)
    values = va.index_select(0, integers(left, va)) * vb.index_select(0, integers(right, vb))
    indices = integers(np.stack((rows[left], cols[right])), ia)
    found = coalesce(of_coordinates(indices, values, (a._aval.shape[0], b._aval.shape[1])))
    return found if layout is COO else in_layout(found, layout)


def _by(t: Tensor) -> str:
    return "x".join(map(str, t._aval.shape))


@answer("mv")
@taking_out
def mv(input: Any, vec: Tensor) -> Tensor:
    """The product of a sparse matrix and a vector."""
    check_tensors("mv", input=input, vec=vec)
    if is_sparse(vec) or vec._aval.ndim != 1 or input._aval.shape[-1] != vec._aval.shape[0]:
        raise RuntimeError("mv: expected self.size(-1) == vec.size(-1)")
    return _with_dense(input, vec.unsqueeze(1)).squeeze(1)


@answer("matmul", "__matmul__")
@taking_out
def matmul(input: Any, other: Any) -> Tensor:
    """The product of a sparse matrix with a matrix or a vector, on either side."""
    check_tensors("matmul", input=input, other=other)
    if input._aval.ndim == 2 and other._aval.ndim == 1:
        return mv(input, other)
    if input._aval.ndim == 1 and other._aval.ndim == 2 and not is_sparse(input):
        return mm(input.unsqueeze(0), other).squeeze(0)
    if input._aval.ndim == 3 and other._aval.ndim == 3 and is_sparse(input):
        return bmm(input, other)
    if input._aval.ndim > 2 or other._aval.ndim > 2:
        if is_sparse(input) and is_sparse(other):
            raise RuntimeError("expand is unsupported for Sparse tensors")
        raise RuntimeError("expand is unsupported for Sparse tensors: reshape the dense operand to a matrix")
    return mm(input, other)


@answer("bmm")
@taking_out
def bmm(input: Any, mat2: Any) -> Tensor:
    """The products of a batch of sparse matrices and one of dense ones: one product, of a matrix with these along its diagonal."""
    if not is_sparse(input) or is_sparse(mat2) or input._aval.ndim != 3 or mat2._aval.ndim != 3 or sparse_dim(input) != 3:
        raise RuntimeError("bmm of sparse tensors: the first one must be a batch of sparse matrices, the second one a batch of dense ones")
    (count, rows, inner), (batch, cols) = input._aval.shape, (mat2._aval.shape[0], mat2._aval.shape[2])
    if batch != count or mat2._aval.shape[1] != inner:
        raise RuntimeError(f"bmm: Argument #2: Expected size [{count}, {inner}, {cols}], got {list(mat2._aval.shape)}")
    indices, values = parts_of(input)
    places = integers(np.array([[rows], [inner]]), indices) * indices[0] + indices[1:]
    whole = of_coordinates(places, values, (count * rows, count * inner))
    return _with_dense(whole, mat2.reshape(count * inner, cols)).reshape(count, rows, cols)


@answer("__rmatmul__")
def rmatmul(self: Any, other: Any) -> Tensor:
    """other @ self."""
    return matmul(other, self)


@answer("addmm")
@taking_out
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    if is_sparse(input) and not (is_sparse(mat1) and is_sparse(mat2)):
        raise RuntimeError("expand is unsupported for Sparse tensors")
    product: Any = mm(mat1, mat2)
    if is_sparse(product):
        scaled = product if alpha == 1 else with_values(product, product.values() * alpha)
        return add(input if beta == 1 else input * beta, scaled)
    input = input if beta == 1 else input * beta
    return input + (product if alpha == 1 else product * alpha)


@answer("linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Tensor:
    """`torch.nn.functional.linear` of a sparse matrix, or with a sparse weight."""
    if is_sparse(weight):
        flat = input.reshape(-1, input._aval.shape[-1])
        found = _with_dense(weight, flat.t()).t().reshape((*input._aval.shape[:-1], weight._aval.shape[0]))
    else:
        found = mm(input, weight.t())
    return found if bias is None else found + bias


def _spmm(name: str) -> None:
    def multiply(input: Tensor, mat2: Tensor) -> Tensor:
        return input.mm(mat2)

    multiply.__name__ = multiply.__qualname__ = name
    multiply.__doc__ = "The product of two matrices, the first one sparse: `torch.mm`."
    public("torch")(multiply)


for _name in ("spmm", "dsmm"):
    _spmm(_name)
