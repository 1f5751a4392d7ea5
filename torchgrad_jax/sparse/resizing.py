"""Sparse tensors of which the size is changed in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.shaping import cat
from torchgrad_jax.sparse.arithmetic import written
from torchgrad_jax.sparse.attributes import of_layout
from torchgrad_jax.sparse.coordinates import integers, nnz
from torchgrad_jax.sparse.coordinates import sparse_dim as count_of_sparse_dims
from torchgrad_jax.sparse.tensors import COO, SparseTensor, answer, is_sparse, of_coordinates, parts_of, values_of

OTHERWISE = (
    "{} of {} dimensions (from {} to {}) on a non-empty sparse tensor is not supported.\nYou could try the following options:\n1. If you need an "
    "empty sparse tensor of this size, call `x = torch.sparse_coo_tensor(size)`.\n2. If you need to resize this tensor, you have the "
    "following options:\n    1. For both sparse and dense dimensions, keep the number of them constant and the size of them non-shrinking, and "
    "then try the same call again.\n    2. Or, create a new sparse tensor with the correct indices and values from this sparse tensor."
)


@public("torch.Tensor")
@answer("sparse_resize_")
def sparse_resize_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Give a sparse tensor another size, of which the first `sparse_dim` dimensions are told by indices: what it holds stays in place. RuntimeError
    where that would not, or its elements would have other dimensions; a tensor without elements may have any size."""
    s = of_layout(self, "sparse_resize_")
    shape = _checked(size, sparse_dim, dense_dim)
    if not nnz(s):
        return sparse_resize_and_clear_(self, size, sparse_dim, dense_dim)
    had, count = s._aval.shape, count_of_sparse_dims(s)
    for kind, before, after in (("sparse", count, sparse_dim), ("dense", len(had) - count, dense_dim)):
        if before != after:
            raise RuntimeError(OTHERWISE.format("changing the number", kind, before, after))
    for kind, before, after in (("sparse", had[:count], shape[:count]), ("dense", had[count:], shape[count:])):
        if any(new < old for old, new in zip(before, after, strict=True)):
            raise RuntimeError(OTHERWISE.format("shrinking the size", kind, list(before), list(after)))
    indices, values = parts_of(s)
    for dim, (old, new) in enumerate(zip(had[count:], shape[count:], strict=True), 1):
        if new > old:
            more = values._aval.shape[:dim] + (new - old,) + values._aval.shape[dim + 1 :]
            values = cat([values, values.new_zeros(more)], dim)
    return written(s, of_coordinates(indices, values, shape, s.content.coalesced))


@public("torch.Tensor")
@answer("sparse_resize_and_clear_")
def sparse_resize_and_clear_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Give a sparse tensor another size, of which the first `sparse_dim` dimensions are told by indices, and drop all elements."""
    s = of_layout(self, "sparse_resize_and_clear_")
    shape = _checked(size, sparse_dim, dense_dim)
    values = values_of(s).detach().new_zeros((0, *shape[sparse_dim:]))
    return written(s, of_coordinates(integers(np.zeros((sparse_dim, 0)), values), values, shape, True))


@public("torch", "torch.Tensor")
@answer("resize_as_sparse_", "resize_as_")
def resize_as_sparse_(self: Tensor, the_template: Tensor) -> Tensor:
    """Give a sparse tensor the size and the dimensions of another one, as `sparse_resize_` does."""
    like: SparseTensor = of_layout(the_template, "_nnz")
    if not is_sparse(self) or self.layout is not COO:
        raise RuntimeError("resize_as_sparse_: the tensor and the template must both be of the layout torch.sparse_coo")
    if self._aval.shape == like._aval.shape and count_of_sparse_dims(self) == count_of_sparse_dims(like):
        return self
    count = count_of_sparse_dims(like)
    return sparse_resize_(self, like._aval.shape, count, like._aval.ndim - count)


def _checked(size: Any, sparse_dim: int, dense_dim: int) -> tuple[int, ...]:
    shape = tuple(size)
    if len(shape) != sparse_dim + dense_dim:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, sparse_dim = {sparse_dim}, dense_dim = {dense_dim}"
        )
    return shape
