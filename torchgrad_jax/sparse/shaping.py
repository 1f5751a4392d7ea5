"""Dimensions exchanged and added, parts taken by index, tensors put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.functions.shaping import cat as cat_dense
from torchgrad_jax.sparse.arithmetic import written
from torchgrad_jax.sparse.coordinates import coalesce, coordinates, host, integers, nnz, sparse_dim
from torchgrad_jax.sparse.tensors import COO, CSC, CSR, SparseTensor, answer, is_sparse, made_of, of_coordinates, parts_of, seen


@answer("transpose", "swapaxes", "swapdims")
def transpose(input: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """Two dimensions exchanged, both sparse or both dense ones."""
    ndim = input._aval.ndim
    a, b = wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)
    order = list(range(ndim))
    order[a], order[b] = b, a
    return permute(input, order)


@answer("t", "H.__get__")
def t(input: SparseTensor) -> SparseTensor:
    """A matrix with its dimensions exchanged."""
    if input._aval.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {input._aval.ndim} dimensions")
    return permute(input, list(range(input._aval.ndim))[::-1])


@answer("t_")
def t_(self: SparseTensor) -> Tensor:
    """`t` in place."""
    return written(self, t(self))


@answer("transpose_", "swapaxes_", "swapdims_")
def transpose_(self: SparseTensor, dim0: int, dim1: int) -> Tensor:
    """`transpose` in place."""
    return written(self, transpose(self, dim0, dim1))


@answer("T.__get__")
def reversed_dims(input: SparseTensor) -> SparseTensor:
    """The dimensions in reverse order."""
    return permute(input, list(range(input._aval.ndim))[::-1])


@answer("mT.__get__", "adjoint", "mH.__get__")
def matrices_turned(input: SparseTensor) -> SparseTensor:
    """The last two dimensions exchanged."""
    return transpose(input, -2, -1)


@answer("permute")
def permute(input: SparseTensor, *dims: Any) -> SparseTensor:
    """The dimensions in another order, in which the sparse ones come first as before."""
    given = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    order = [wrap_dim(d, input._aval.ndim) for d in given]
    if sorted(order) != list(range(input._aval.ndim)):
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions "
            f"i.e. input.dim() = {input._aval.ndim} is not equal to len(dims) = {len(order)}"
        )
    size = tuple([input._aval.shape[d] for d in order])
    content = input.content
    if order == sorted(order):
        return seen(input, made_of(size, content.parts, content.layout, content.coalesced, content.known))
    if content.layout is not COO:  # the same parts say the columns of the one and the rows of the other
        return seen(input, made_of(size, content.parts, CSC if content.layout is CSR else CSR))
    n = sparse_dim(input)
    if any(d >= n for d in order[:n]):
        raise RuntimeError(f"transpose: sparse and dense dimensions cannot be exchanged (dims {order}, of which {n} are sparse)")
    indices, values = parts_of(input)
    if order[:n] != list(range(n)):
        indices = indices.index_select(0, integers(np.array(order[:n]), indices))
    if order[n:] != list(range(n, len(order))):
        values = values.permute(0, *[d - n + 1 for d in order[n:]])
    name = "TBackward0" if len(order) == 2 else "PermuteBackward0"
    return seen(input, of_coordinates(indices, values, size, content.coalesced and order[:n] == list(range(n)), known_as=name))


@answer("unsqueeze")
def unsqueeze(input: SparseTensor, dim: int) -> SparseTensor:
    """A new dimension of size 1."""
    s = coordinates(input)
    at, n = wrap_dim(dim, s._aval.ndim + 1), sparse_dim(s)
    indices, values = parts_of(s)
    size = (*s._aval.shape[:at], 1, *s._aval.shape[at:])
    if at > n:
        return seen(input, of_coordinates(indices, values.unsqueeze(at - n + 1), size, s.content.coalesced))
    row = indices.new_zeros((1, nnz(s)))
    return seen(input, of_coordinates(cat_dense((indices[:at], row, indices[at:]), 0), values, size))


@answer("squeeze")
def squeeze(input: SparseTensor, dim: Any = None) -> SparseTensor:
    """Without the dimensions, or without those of `dim`, that have size 1."""
    s = coordinates(input)
    n, shape = sparse_dim(s), s._aval.shape
    chosen = range(len(shape)) if dim is None else [wrap_dim(d, len(shape)) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    gone = {d for d in chosen if shape[d] == 1}
    indices, values = parts_of(s)
    kept = integers(np.array([d for d in range(n) if d not in gone], np.int64), indices)
    sizes = [shape[d] for d in range(n, len(shape)) if d not in gone]
    size = tuple([m for d, m in enumerate(shape) if d not in gone])
    return of_coordinates(indices.index_select(0, kept), values.reshape((nnz(s), *sizes)), size, s.content.coalesced)


# ---------------------------------------------------------------------- parts


@answer("index_select")
def index_select(input: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """The parts at these places along a dimension."""
    s = coordinates(input)
    d, n = wrap_dim(dim, s._aval.ndim), sparse_dim(s)
    count = s._aval.shape[d]
    wanted = host(index).reshape(-1)
    if index._aval.ndim > 1 or wanted.dtype not in (np.int32, np.int64):
        raise IndexError("index_select() argument index must be 1-D strided (non-sparse) long-tensor.")
    wanted = wanted.astype(np.int64)
    if len(wanted) and (wanted.min() < -count or wanted.max() >= count):
        raise IndexError(f"index_select(): index contains {wanted[(wanted < -count) | (wanted >= count)][0]} that is out of range for tensor of "
                         f"size {list(s._aval.shape)} at dimension {d}")  # fmt: skip
    wanted = np.where(wanted < 0, wanted + count, wanted)
    size = (*s._aval.shape[:d], len(wanted), *s._aval.shape[d + 1 :])
    indices, values = parts_of(s)
    if d >= n:
        return of_coordinates(indices, values.index_select(d - n + 1, integers(wanted, values)), size, s.content.coalesced)
    numbers = host(indices)
    # For each place that is wanted the elements that are there, in their order.
    order = np.argsort(numbers[d], kind="stable")
    along = numbers[d][order]
    begins, ends = np.searchsorted(along, wanted), np.searchsorted(along, wanted, side="right")
    lengths = ends - begins
    at = order[np.arange(lengths.sum()) + np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)]
    found = numbers[:, at]
    found[d] = np.repeat(np.arange(len(wanted)), lengths)
    return of_coordinates(integers(found, indices), values.index_select(0, integers(at, values)), size)


@answer("select")
def select(input: SparseTensor, dim: int, index: int) -> Tensor:
    """The part at one place along a dimension, without it: an ordinary tensor where no sparse dimension is left."""
    s = coordinates(input)
    d, n = wrap_dim(dim, s._aval.ndim), sparse_dim(s)
    count, at = s._aval.shape[d], int(index)
    if not -count <= at < count:
        raise IndexError(f"select(): index {at} out of range for tensor of size {list(s._aval.shape)} at dimension {d}")
    at = at + count if at < 0 else at
    indices, values = parts_of(s)
    size = (*s._aval.shape[:d], *s._aval.shape[d + 1 :])
    if d >= n:
        return seen(input, of_coordinates(indices, values.select(d - n + 1, at), size, s.content.coalesced))
    numbers = host(indices)
    there = np.flatnonzero(numbers[d] == at)
    found = values.index_select(0, integers(there, values))
    if n == 1:
        return found.sum(0)
    return seen(input, of_coordinates(integers(np.delete(numbers[:, there], d, 0), indices), found, size, s.content.coalesced))


@answer("__getitem__")
def getitem(self: SparseTensor, key: Any) -> Any:
    """The part at numbers, one for each of the first dimensions, `:` and None. NotImplementedError for any other key."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(isinstance(k, (bool, Tensor, list, np.ndarray)) or k is ... or (isinstance(k, slice) and k != slice(None)) for k in keys):
        raise NotImplementedError(
            "torchgrad_jax indexes sparse tensors by numbers alone, as PyTorch does: index_select(dim, index), or coalesce() and masks of indices()"
        )
    found: Any = self
    at = 0
    for k in keys:
        if k is None:
            found = found.unsqueeze(at)
        if k is None or isinstance(k, slice):
            at += 1
        else:
            if at < found._aval.ndim and not -found._aval.shape[at] <= k < found._aval.shape[at]:
                raise IndexError(f"index {k} is out of bounds for dimension {at} with size {found._aval.shape[at]}")
            found = found.select(at, k)
    return found


@answer("__setitem__")
def setitem(self: Any, key: Any, value: Any) -> None:
    """TypeError, always."""
    raise TypeError("Cannot assign to a sparse tensor" if is_sparse(self) else "Cannot assign a sparse tensor to a part: to_dense() first")


@answer("__iter__")
def iterated(self: SparseTensor) -> Iterator[Tensor]:
    """The parts along the first dimension."""
    return iter(unbind(self))


@answer("unbind")
def unbind(input: SparseTensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The parts along a dimension, without it."""
    return tuple([select(input, dim, i) for i in range(input._aval.shape[wrap_dim(dim, input._aval.ndim)])])


@answer("narrow_copy", "narrow")
def narrow_copy(input: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    """The part from `start` on along a dimension."""
    s = coordinates(input)
    d, n = wrap_dim(dim, s._aval.ndim), sparse_dim(s)
    if not 0 <= start <= start + length <= s._aval.shape[d]:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({s._aval.shape[d]}).")
    indices, values = parts_of(s)
    size = (*s._aval.shape[:d], length, *s._aval.shape[d + 1 :])
    if d >= n:
        return of_coordinates(indices, values.narrow(d - n + 1, start, length), size, s.content.coalesced)
    numbers = host(indices)
    there = np.flatnonzero((numbers[d] >= start) & (numbers[d] < start + length))
    found = numbers[:, there]
    found[d] -= start
    return of_coordinates(integers(found, indices), values.index_select(0, integers(there, values)), size, s.content.coalesced)


# ---------------------------------------------------------------------- put together


@answer("cat", "concat", "concatenate")
def cat(tensors: Any, dim: int = 0, *, out: Any = None) -> SparseTensor:
    """Sparse tensors one after the other."""
    _all_sparse(tensors)
    parts = [coordinates(s) for s in tensors]
    first = parts[0]
    d, n = wrap_dim(dim, first._aval.ndim), sparse_dim(first)
    indices, values, begin = [], [], 0
    widths = [s._aval.shape[d] for s in parts]
    for s, width in zip(parts, widths, strict=True):
        i, v = parts_of(s)
        if sparse_dim(s) != n or s._aval.shape[:d] + s._aval.shape[d + 1 :] != first._aval.shape[:d] + first._aval.shape[d + 1 :]:
            raise RuntimeError("All tensors must have the same shape and the same number of sparse dimensions, except along the dimension of cat")
        if d < n:
            i = i if not begin else i + integers(np.arange(n) == d, i).unsqueeze(1) * begin
        else:
            around = [(len(v), *first._aval.shape[n:d], m, *first._aval.shape[d + 1 :]) for m in (begin, sum(widths) - begin - width)]
            v = cat_dense((v.new_zeros(around[0]), v, v.new_zeros(around[1])), d - n + 1)
        indices.append(i)
        values.append(v)
        begin += width
    size = (*first._aval.shape[:d], begin, *first._aval.shape[d + 1 :])
    return of_coordinates(cat_dense(tuple(indices), 1), cat_dense(tuple(values), 0), size)


@answer("stack")
def stack(tensors: Any, dim: int = 0, *, out: Any = None) -> SparseTensor:
    """Sparse tensors along a new dimension."""
    _all_sparse(tensors)
    return cat([unsqueeze(s, dim) for s in tensors], wrap_dim(dim, tensors[0]._aval.ndim + 1))


def _all_sparse(tensors: Any) -> None:
    for i, t in enumerate(tensors):
        if not is_sparse(t):
            raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor was found at position {i}. to_sparse() makes it sparse.")


@answer("vstack", "row_stack")
def vstack(tensors: Any, *, out: Any = None) -> SparseTensor:
    """Sparse matrices one below the other."""
    return cat(tensors, 0)


@answer("hstack", "column_stack")
def hstack(tensors: Any, *, out: Any = None) -> SparseTensor:
    """Sparse matrices side by side."""
    return cat(tensors, 1)


@answer("equal")
def equal(input: Any, other: Any) -> bool:
    """Whether two sparse tensors have the same elements."""
    if not (is_sparse(input) and is_sparse(other)) or input._aval.shape != other._aval.shape:
        return False
    (a, b), (c, d) = (parts_of(coalesce(coordinates(s))) for s in (input, other))
    return a._aval.shape == c._aval.shape and bool((a == c).all()) and bool((b == d).all())
