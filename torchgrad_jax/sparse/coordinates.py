"""Where the elements of a tensor of the layout `sparse_coo` are: in order and each once (`coalesce`), as one number each, among those of others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import from_data, zeros
from torchgrad_jax.memory.sparse_content import SparseContent
from torchgrad_jax.runtime.value import Aval, Value
from torchgrad_jax.sparse.tensors import COO, CSC, PatternNode, SparseTensor, answer, made_of, of_coordinates, parts_of


def host(t: Tensor) -> np.ndarray:
    """The numbers of a tensor, computed now."""
    return np.asarray(t._concrete("coalesce"))


def integers(array: np.ndarray, like: Tensor) -> Tensor:
    """A tensor of int64 on the device of another."""
    return created(from_data(np.ascontiguousarray(array, np.int64), None, like.device))


def sparse_dim(s: SparseTensor) -> int:
    """How many dimensions are told by indices."""
    return s.content.parts[0]._aval.shape[0] if s.content.layout is COO else 2


def nnz(s: SparseTensor) -> int:
    """How many elements there are."""
    return s.content.parts[-1]._aval.shape[0]


def split_size(s: SparseTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of the dimensions that are told by indices, and of those that each element has."""
    shape, n = s._aval.shape, sparse_dim(s)
    return shape[:n], shape[n:]


# ---------------------------------------------------------------------- places as one number


def flat_places(indices: Tensor, size: Sequence[int]) -> Tensor:
    """Of each element the place among all that there could be, in the order of rows."""
    if not size:
        return zeros(indices._aval.shape[1], dtype=indices.dtype, device=indices.device)
    found = indices[0]
    for d, n in enumerate(size[1:], 1):
        found = found * n + indices[d]
    return found


def _flat(indices: np.ndarray, size: Sequence[int]) -> np.ndarray:
    found = np.zeros(indices.shape[1], np.int64)
    for index, n in zip(indices, size, strict=True):
        found = found * n + index
    return found


def unflat(flat: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """The indices, one row for each dimension, of places as one number."""
    found = np.empty((len(size), len(flat)), np.int64)
    for d in range(len(size) - 1, -1, -1):
        found[d] = flat % max(size[d], 1)
        flat = flat // max(size[d], 1)
    return found


class Known(NamedTuple):
    """What was found out about indices: of which Value, their places in order and each once; `order`, which of the elements come there, None where
    they are in order already; `into`, for each element which of the places it has, where some have the same."""

    value: Value
    places: np.ndarray
    indices: Tensor
    order: Tensor | None
    into: Tensor | None


def known_of(s: SparseTensor) -> Known:
    """What is known of the tensor's indices, found out once."""
    content = s.content
    indices = content.parts[0]
    value = indices._content()
    known: Any = content.known
    if known is None or known.value is not value:
        known = content.known = _found(value, indices, split_size(s)[0])
    return known


def _found(value: Value, indices: Tensor, size: tuple[int, ...]) -> Known:
    flat = _flat(host(indices), size)
    steps = np.diff(flat)
    if (steps > 0).all():
        return Known(value, flat, indices, None, None)
    if (steps >= 0).all():
        order = None
    else:
        order = np.argsort(flat, kind="stable")
        flat = flat[order]
    first = np.r_[True, flat[1:] != flat[:-1]]
    places = flat[first]
    into = None if first.all() else integers(np.cumsum(first) - 1, indices)
    return Known(value, places, integers(unflat(places, size), indices), None if order is None else integers(order, indices), into)


# ---------------------------------------------------------------------- coalesce


@answer("coalesce")
def coalesce(self: SparseTensor) -> SparseTensor:
    """A tensor of the same elements in order, those at one place added. The tensor itself if it is known to be so."""
    content = self.content
    if content.layout is not COO:
        raise RuntimeError(f"coalesce expected sparse coordinate tensor layout but got {_title(content.layout)}")
    if content.coalesced:
        return self
    known, (_, values) = known_of(self), parts_of(self)
    if known.order is not None:
        values = values.index_select(0, known.order)
    if known.into is not None:
        values = _added(values, known.into, len(known.places))
    return of_coordinates(known.indices, values, self._aval.shape, True, _in_order(known), "CoalesceBackward0")


def _in_order(known: Known) -> Known:
    return Known(known.indices._content(), known.places, known.indices, None, None)


def _title(layout: Any) -> str:
    return "SparseCsr" if layout is not CSC else "SparseCsc"


def _added(values: Tensor, into: Tensor, count: int) -> Tensor:
    if values._aval.dtype == np.bool_:
        return _added(values.to(into.dtype), into, count).bool()
    return values.new_zeros((count, *values._aval.shape[1:])).index_add(0, into, values)


@answer("is_coalesced")
def is_coalesced(self: SparseTensor) -> bool:
    """Whether the indices are known to be in order and each there once."""
    if self.content.layout is not COO:
        raise RuntimeError(f"is_coalesced expected sparse coordinate tensor layout but got {_title(self.content.layout)}")
    return self.content.coalesced


# ---------------------------------------------------------------------- to and from dense


def dense_of(s: SparseTensor) -> Tensor:
    """The tensor with all its elements, of the layout `sparse_coo`."""
    indices, values = parts_of(s)
    size, rest = split_size(s)
    count = prod(size)
    if not values._aval.size or not count:
        return values.new_zeros(s._aval.shape) + values.sum() if values._rg else values.new_zeros(s._aval.shape)
    return _added(values, flat_places(indices, size), count).reshape((*size, *rest))


def elements(dense: Tensor, indices: Tensor, size: Sequence[int]) -> Tensor:
    """What an ordinary tensor has at these indices into its first dimensions."""
    rest = dense._aval.shape[len(size) :]
    if not size:
        return dense.reshape((1, *rest)).expand((indices._aval.shape[1], *rest))
    if not dense._aval.size:
        return dense.new_zeros((indices._aval.shape[1], *rest))
    return dense.reshape((-1, *rest)).index_select(0, flat_places(indices, size))


def chosen(s: SparseTensor, indices: Tensor, size: tuple[int, ...]) -> Tensor:
    """What a sparse tensor has at these indices, 0 where it has nothing."""
    content = coalesce(s).content
    if content.parts[0] is indices:
        return content.parts[1]
    have, wanted = known_of(coalesce(s)).places, _flat(host(indices), size)
    values = content.parts[1]
    if not len(have):
        return values.new_zeros((len(wanted), *values._aval.shape[1:]))
    at = np.minimum(np.searchsorted(have, wanted), len(have) - 1)
    there = have[at] == wanted
    found = values.index_select(0, integers(at, values))
    if there.all():
        return found
    missing = created(from_data(~there, None, values.device)).reshape((-1, *(1,) * (values._aval.ndim - 1)))
    return found.masked_fill(missing, 0)


def dense_to_sparse(t: Tensor, dims: int | None = None) -> SparseTensor:
    """An ordinary tensor as a sparse one, whose first `dims` dimensions are told by indices: the elements that are not all 0."""
    dims = t._aval.ndim if dims is None else dims
    size, rest = t._aval.shape[:dims], t._aval.shape[dims:]
    numbers = np.asarray(t.detach()._concrete("to_sparse"))
    there = (numbers.reshape((*size, -1)) != 0).any(-1) if rest else numbers != 0
    flat = np.flatnonzero(there)
    indices = integers(unflat(flat, size), t)
    values = elements(t, indices, size)
    return of_coordinates(indices, values, t._aval.shape, True, Known(indices._content(), flat, indices, None, None))


def coordinates(s: SparseTensor) -> SparseTensor:
    """A tensor of whatever layout as one of `sparse_coo`."""
    content = s.content
    if content.layout is COO:
        return s
    indices = _pairs(content)
    made = of_coordinates(indices, content.parts[2], s._aval.shape, content.layout is not CSC)
    return made if content.layout is not CSC else coalesce(made)


def in_layout(s: SparseTensor, layout: Any) -> SparseTensor:
    """A tensor of whatever layout as one of another. RuntimeError for a compressed one of what is no matrix."""
    if s.content.layout is layout:
        return s
    s = coordinates(s)
    if layout is COO:
        return s
    if s._aval.ndim != 2 or sparse_dim(s) != 2:
        raise RuntimeError(f"torchgrad_jax has compressed layouts of matrices only, not of the size {list(s._aval.shape)}")
    s = coalesce(s)
    indices, values = parts_of(s)
    rows, cols = host(indices)
    if layout is CSC:
        order = np.argsort(cols, kind="stable")
        values, rows, cols = values.index_select(0, integers(order, values)), cols[order], rows[order]
    bounds = np.searchsorted(rows, np.arange(s._aval.shape[layout is CSC] + 1))
    return made_of(s._aval.shape, (integers(bounds, indices), integers(cols, indices), values), layout)


def _pairs(content: SparseContent) -> Tensor:
    """The indices of compressed rows or columns, one row for each dimension."""
    bounds, others = content.parts[:2]
    known = content.known
    if known is None or known[0] is not bounds._content() or known[1] is not others._content():
        inner = host(others)
        outer = np.repeat(np.arange(bounds._aval.size - 1), np.diff(host(bounds)))
        both = (inner, outer) if content.layout is CSC else (outer, inner)
        known = content.known = (bounds._content(), others._content(), integers(np.stack(both), bounds))
    return known[2]


def indices_of(content: SparseContent) -> Tensor:
    """The indices of the elements in their order, one row for each dimension."""
    return content.parts[0] if content.layout is COO else _pairs(content)


def taken(grad: Tensor, pattern: SparseContent, aval: Aval) -> Tensor:
    """See `PatternNode`."""
    indices = indices_of(pattern)
    size = aval.shape[: indices._aval.shape[0]]
    if isinstance(grad, SparseTensor):
        return chosen(coordinates(grad), indices, size)
    return elements(grad, indices, size)


PatternNode.taken = staticmethod(taken)
