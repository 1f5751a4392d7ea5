"""Sums, products element by element, functions of the elements, and reductions."""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np

from torchgrad_jax.calling.out import with_out
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.core.writing import LEAF
from torchgrad_jax.declaration.operator import NUMBERS
from torchgrad_jax.functions.shaping import cat as cat_dense
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.sparse.coordinates import (
    chosen,
    coalesce,
    coordinates,
    dense_of,
    elements,
    in_layout,
    integers,
    known_of,
    nnz,
    sparse_dim,
    split_size,
    unflat,
)
from torchgrad_jax.sparse.tensors import (
    COO,
    SparseTensor,
    answer,
    answers,
    is_sparse,
    of_coordinates,
    parts_of,
    replace,
    values_of,
    with_values,
)

_SPARSE_FIRST = "add(sparse, dense) is not supported. Use add(dense, sparse) instead."


# ---------------------------------------------------------------------- sums


@answer("add")
def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha * other: sparse if both are, dense if the first one is. RuntimeError for a sparse and a dense tensor in this order, and for sizes
    that are not the same."""
    if not is_sparse(other):
        raise RuntimeError(_SPARSE_FIRST)
    if not isinstance(input, Tensor):
        raise RuntimeError(_SIZES.format([], list(other._aval.shape)))
    shapes = list(input._aval.shape), list(other._aval.shape)
    if shapes[0] != shapes[1]:
        if is_sparse(input):
            raise RuntimeError(f"add: expected sizes of 'self' and 'other' to match, but {shapes[0]} != {shapes[1]}")
        raise RuntimeError(_SIZES.format(*shapes))
    if not is_sparse(input):
        return _added_to_dense(input, other, alpha)
    if input.layout is not COO:
        made = _sum(coordinates(input), coordinates(other), alpha)
        return in_layout(made, input.layout)
    return _sum(input, coordinates(other), alpha)


_SIZES = (
    "add: expected 'self' and 'other' to have same size, but self has size {} while other has size {} (FYI: dense-sparse addition does not currently "
    "support broadcasting)"
)


def _added_to_dense(dense: Tensor, s: SparseTensor, alpha: Any) -> Tensor:
    indices, values = parts_of(coordinates(s))
    size, rest = split_size(coordinates(s))
    if not values._aval.size or dense._aval.dtype != values._aval.dtype or not size:
        return dense.add(dense_of(coordinates(s)), alpha=alpha)
    return dense.index_put(tuple(indices.unbind(0)), values if alpha == 1 else values * alpha, accumulate=True)


def _sum(a: SparseTensor, b: SparseTensor, alpha: Any) -> SparseTensor:
    if sparse_dim(a) != sparse_dim(b):
        raise RuntimeError("add: expected 'self' and 'other' to have same density")
    (ia, va), (ib, vb) = parts_of(a), parts_of(b)
    vb = vb if alpha == 1 else vb * alpha
    if _same(ia, ib):
        return with_values(a, va + vb)
    dtype = dtypes_of(va, vb)
    indices, values = cat_dense((ia, ib), 1), cat_dense((va.to(dtype), vb.to(dtype)), 0)
    made = of_coordinates(indices, values, a._aval.shape)
    return coalesce(made) if (a.content.coalesced and b.content.coalesced) or not (nnz(a) and nnz(b)) else made


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether indices are known to be the same."""
    one, other = a._content(), b._content()
    if one is other:
        return True
    if one.aval is not other.aval:
        return False
    first, second = one.at_hand(), other.at_hand()
    return first is not None and second is not None and np.array_equal(first, second)


def dtypes_of(a: Tensor, b: Tensor) -> Any:
    """The dtype of a result of both."""
    return (a.new_empty((1,)) + b.new_empty((1,))).dtype if a.dtype is not b.dtype else a.dtype


@answer("sub", "subtract")
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other: see `add`."""
    return add(input, other, alpha=-alpha)


@answer("rsub", "__rsub__")
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    return add(other, input, alpha=-alpha)


# ---------------------------------------------------------------------- products


def is_number(x: Any) -> bool:
    """Whether it is a number, or a tensor of one without dimensions."""
    return isinstance(x, (*NUMBERS, np.generic)) or (isinstance(x, Tensor) and not is_sparse(x) and not x._aval.ndim)


@answer("mul", "multiply")
def mul(input: Any, other: Any) -> Tensor:
    """The product element by element: of what both have where both are sparse."""
    a: Any = input if is_sparse(input) else other
    b: Any = other if is_sparse(input) else input
    if is_number(b):
        return with_values(a, values_of(a) * b)
    if not isinstance(b, Tensor):
        raise TypeError(f"mul(): argument 'other' (position 1) must be Tensor, not {type(b).__name__}")
    if a.layout is not COO:
        product: Any = mul(coordinates(a), coordinates(b) if is_sparse(b) else b)
        return in_layout(product, a.layout)
    if is_sparse(b):
        return _product(a, coordinates(b))
    if b._aval.shape != a._aval.shape:
        b = b.expand(a._aval.shape)
    indices, values = parts_of(a)
    return with_values(a, values * elements(b, indices, split_size(a)[0]))


def _product(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    if a._aval.shape != b._aval.shape:
        raise RuntimeError(
            f"mul: expected 'self' and 'other' to have same sizes, but {list(a._aval.shape)} != {list(b._aval.shape)}"
        )  # fmt: skip
    size = split_size(a)[0]
    if not a.content.coalesced:
        return with_values(a, parts_of(a)[1] * chosen(b, parts_of(a)[0], size))
    if not b.content.coalesced:
        return with_values(b, parts_of(b)[1] * chosen(a, parts_of(b)[0], size))
    places, at, there = np.intersect1d(known_of(a).places, known_of(b).places, assume_unique=True, return_indices=True)
    (ia, va), (_, vb) = parts_of(a), parts_of(b)
    values = va.index_select(0, integers(at, va)) * vb.index_select(0, integers(there, vb))
    return of_coordinates(integers(unflat(places, size), ia), values, a._aval.shape, True)


@answer("div", "divide", "true_divide")
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """The elements over a number. RuntimeError for any other divisor."""
    if is_sparse(other) or not is_number(other):
        shape = list(other._aval.shape) if isinstance(other, Tensor) else []
        raise RuntimeError(f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {shape} for divisor)")
    return with_values(input, values_of(input).div(other, rounding_mode=rounding_mode))


@answer("floor_divide", "__floordiv__")
def floor_divide(input: Any, other: Any) -> Tensor:
    """The elements over a number, rounded down."""
    return div(input, other, rounding_mode="floor")


@answer("pow", "__pow__")
def power(input: Any, exponent: Any) -> Tensor:
    """The elements, once they are coalesced, to the power of a positive number."""
    if not is_sparse(input) or not is_number(exponent) or not exponent > 0:
        raise RuntimeError("pow of a sparse tensor: the exponent must be a number larger than 0, since 0 to its power must be 0")
    return of_elements(input, lambda values: values.pow(exponent))


# ---------------------------------------------------------------------- functions of the elements


def of_elements(s: SparseTensor, function: Any) -> SparseTensor:
    """A function by which 0 stays 0 of each element."""
    s = coalesce(s) if s.layout is COO else s
    return with_values(s, function(values_of(s)))


def _elementwise(name: str) -> Any:
    def compute(input: SparseTensor) -> Any:
        return of_elements(input, getattr(Tensor, name))

    return compute


_KEEP_ZERO = """abs absolute asin arcsin asinh arcsinh atan arctan atanh arctanh ceil deg2rad erf erfinv expm1 floor frac log1p nan_to_num rad2deg
relu round sgn sign sin sinh sqrt square tan tanh trunc fix isnan isinf signbit isposinf isneginf conj_physical"""
for _name in _KEEP_ZERO.split():
    answer(_name)(_elementwise(_name))
answer("__abs__")(_elementwise("abs"))


@answer("neg", "negative", "__neg__")
def neg(input: SparseTensor) -> SparseTensor:
    """The negative of each element."""
    return with_values(input, -values_of(input))


@answer("positive", "__pos__")
def positive(input: SparseTensor) -> SparseTensor:
    """The tensor itself."""
    return input


@answer("conj", "resolve_conj", "resolve_neg")
def conj(input: SparseTensor) -> SparseTensor:
    """The conjugate of each element."""
    return with_values(input, values_of(input).conj()) if input.is_complex() else input


# ---------------------------------------------------------------------- in place


def version_of(self: SparseTensor) -> int:
    """How often it was written to."""
    return values_of(self)._version + self.content.written


def written(self: SparseTensor, found: SparseTensor, shared: bool = False) -> Tensor:
    """`become`, which is counted."""
    version = version_of(self) + 1
    become(self, found, shared)
    self.content.written += version - version_of(self)
    return self


def become(self: SparseTensor, found: SparseTensor, shared: bool) -> Tensor:
    """`self`, which is `found` now: a leaf goes on as the one that it was. RuntimeError for such a one where a graph is recorded.

    shared: whether the values are written where they are, so that whoever else has them sees it. As in PyTorch that is so of functions of single
    elements; others give the tensor new values.
    """
    is_leaf = self._rg and self._node is None
    if is_leaf and per_thread.recorder.grad_enabled:
        raise RuntimeError(LEAF)
    values, new = values_of(self), values_of(found)
    places = zip(self.content.parts[:-1], found.content.parts[:-1], strict=True)
    users_leaf = values._rg and values._node is None and not is_leaf
    if new._aval is values._aval and not users_leaf and all([a is b for a, b in places]):
        if shared:
            values.copy_(new)
            return self if is_leaf else replace(self, with_values(found, values))
        if is_leaf:
            values.data = new
            return self
    grad, owner = self.grad if is_leaf else None, self.content.owner
    replace(self, found).requires_grad_(is_leaf or self._rg)
    if grad is not None and grad._aval is self._aval:
        self.grad = grad
    if owner is not None:
        owner.grad = self
        self.content.owner = owner
    return self


def _in_place(name: str, function: Any) -> None:
    shared = name not in _GIVING_NEW_VALUES

    @answer(f"{name}_")
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = function(self, *args, **kwargs)
        if not is_sparse(self):
            return self.copy_(found)
        return written(self, found, shared)


_GIVING_NEW_VALUES = ("add", "sub", "subtract", "mul", "multiply")
_WRITTEN = {_name: answers[_name] for _name in ("abs", "relu", "sqrt", "sin", "tanh", "square", "sign", "round", "floor", "ceil")}
for _name, _function in {
    **_WRITTEN,
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "neg": neg,
    "pow": power,
    "multiply": mul,
    "subtract": sub,
}.items():
    _in_place(_name, _function)


# ---------------------------------------------------------------------- reductions


@answer("sum")
def sum(input: SparseTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum of all elements, or of those along dimensions: a sparse tensor where some of its sparse dimensions are left, else a dense one."""
    if dim is None or dim == ():
        return values_of(input).sum(dtype=dtype)
    s = coordinates(input)
    ndim, n = s._aval.ndim, sparse_dim(s)
    dims = sorted([wrap_dim(d, ndim) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))])
    for d in dims:
        if dims.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    indices, values = parts_of(s)
    of_dense = [d - n + 1 for d in dims if d >= n]
    values = values.sum(of_dense, dtype=dtype) if of_dense else values if dtype is None else values.to(dtype)
    shape = tuple([size for d, size in enumerate(s._aval.shape) if d not in dims])
    left = [d for d in range(n) if d not in dims]
    if not left:
        found = values.sum(0)
    else:
        kept = indices.index_select(0, integers(np.array(left), indices))
        found = of_coordinates(kept, values, shape, s.content.coalesced and len(left) == n)
        found = coalesce(found)
    for d in dims if keepdim else ():
        found = found.unsqueeze(d)
    return found


@answer("norm")
def norm(input: SparseTensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The norm of all elements. NotImplementedError along a dimension."""
    if dim is not None:
        raise NotImplementedError("torchgrad_jax has norms of sparse tensors of all elements only: to_dense().norm(dim=...)")
    values = values_of(coalesce(input) if input.layout is COO else input)
    return values.norm(2 if p == "fro" else p)


@answer("any")
def any_(input: SparseTensor) -> Tensor:
    """Whether some element is not 0."""
    return values_of(input).any()


def taking_out(function: Any) -> Any:
    """A function that may write its result into `out=`, an ordinary tensor. NotImplementedError for a sparse one."""

    def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if is_sparse(out) or (out is not None and is_sparse(found)):
            raise NotImplementedError("torchgrad_jax does not write sparse results into out=: copy_() them there")
        return with_out(function.__name__, out, found)

    return wraps(function)(call)


@answer("dropout")
def dropout(input: SparseTensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> SparseTensor:
    """The tensor itself, where nothing is dropped. NotImplementedError elsewhere, as in PyTorch."""
    if training and p > 0:
        raise NotImplementedError(
            "Could not run 'aten::bernoulli_.float' with arguments from the 'SparseCPU' backend. Drop values(), and make a tensor of the rest."
        )
    return input


def softmax_of(s: SparseTensor, dim: int, dtype: Any, log: bool) -> SparseTensor:
    """softmax along a sparse or dense dimension, of the elements that there are: what is not there counts as minus infinity."""
    s = coalesce(s)
    indices, values = parts_of(s)
    values = values if dtype is None else values.to(dtype)
    n, dim = sparse_dim(s), wrap_dim(dim, s._aval.ndim)
    if dim >= n:
        return with_values(s, (values.log_softmax if log else values.softmax)(dim - n + 1))
    size = split_size(s)[0]
    flat = known_of(s).places
    columns = unflat(flat, size)
    others = np.zeros(len(flat), np.int64)
    for d in range(n):
        if d != dim:
            others = others * size[d] + columns[d]
    _, into = np.unique(others, return_inverse=True)
    count = int(into.max()) + 1 if len(into) else 0
    at = integers(into, indices)
    groups = (count, *values._aval.shape[1:])
    wide = at.reshape((-1, *(1,) * (values._aval.ndim - 1))).expand(values._aval.shape)
    largest = values.detach().new_full(groups, -np.inf).scatter_reduce(0, wide, values.detach(), "amax")
    shifted = values - largest.index_select(0, at)
    sums = values.new_zeros(groups).index_add(0, at, shifted.exp())
    return with_values(s, shifted - sums.log().index_select(0, at) if log else shifted.exp() / sums.index_select(0, at))
