"""Operators that read at places given by index, and that order: their forms on NumPy arrays. See `numpy_forms.py`.

What checks its indices returns the outcome behind its result, as its JAX function does: int64 zeros where nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration import promotion
from torchgrad_jax.declaration.numpy_forms import Array, Shape, converted, expand_vjp
from torchgrad_jax.runtime.baseline import Forms, blocks
from torchgrad_jax.runtime.baseline.carrying import Taken
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.indexing import add_rows
from torchgrad_jax.runtime.baseline.loops import LAST, LEAST, MOST, SUM, along, are_beside
from torchgrad_jax.runtime.native.handlers import are_within, ordered, searched, taken
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

_ALL, _REVERSED = slice(None), slice(None, None, -1)
# An index that is out of range is told in one number, with the size and the dimension it is out of; see `packing`.
INDEX_BITS, SIZE_BITS = 32, 25
# The outcome where nothing is wrong.
RIGHT = np.zeros(2, np.int64)
RIGHT.flags.writeable = False
# From so many elements on a sort of integers, of the elements with their places in one, is quicker than a stable one.
_FEW = 1 << 10
# What C's function orders: float32, float64, int32, int64.
_ORDERED = "fdil"
# Beside those of the loops a way to put several elements to one place.
PRODUCT = LEAST + 1
_FOLDS = {MOST: np.maximum, LEAST: np.minimum, PRODUCT: np.multiply}


def packing(size: int, dim: int) -> int:
    """What is added to an index, within INDEX_BITS, to tell that it is out of range, and of what."""
    return (1 << (INDEX_BITS - 1)) + (min(size, (1 << SIZE_BITS) - 1) << INDEX_BITS) + (dim << (INDEX_BITS + SIZE_BITS))


def _outcome(offenders: Array, size: int, dim: int) -> Array:
    half = 1 << (INDEX_BITS - 1)
    return np.array([1, min(max(int(offenders[0]), -half), half - 1) + packing(size, dim)], np.int64)


def _told(shape: Shape, dtype: np.dtype, checked: bool) -> Any:
    found = stand_in(shape, dtype)
    return (found, stand_in((2,), np.dtype(np.int64))) if checked else found


def reading(
    read: Callable[..., Array], shape_of: Callable[..., Shape | None], inside: Callable[..., bool] | None = None,
    outcome: Callable[..., Array] | None = None, clipped: Callable[..., tuple[Any, ...]] | None = None, picks: bool = True,
    steps: Callable[..., Any] | None = None, at_once: Callable[..., Array | None] | None = None,
) -> Forms:  # fmt: skip
    """The form of an operator that reads, or adds, at indices, or of its checked twin. read: at indices in range. inside: whether they are; outcome:
    what the twin says of those that are not, and clipped: its operands with these in range. at_once: reads where they are in range; None for others,
    and for what it does not know."""

    def result(x: Array, *rest: Any, **statics: Any) -> Any:
        shape = shape_of(x, *rest, **statics) if x.size else None
        return None if shape is None else _told(shape, x.dtype, inside is not None)

    def checked(x: Array, *rest: Any, **statics: Any) -> Any:
        assert inside is not None and outcome is not None and clipped is not None
        if at_once is not None and (found := at_once(x, *rest, **statics)) is not None:
            return found, RIGHT
        if inside(x, *rest, **statics):
            return read(x, *rest, **statics), RIGHT
        return read(*clipped(x, *rest, **statics), **statics), outcome(x, *rest, **statics)

    return Forms(read if inside is None else checked, result, True, picks=picks, steps=steps)


def in_range(index: Array, size: int, low: int = 0) -> bool:
    """Whether all of an index is in [low, size)."""
    if index.dtype == np.int64:
        return are_within(contiguous(index), low, size - low)
    return not index.size or (index.min() >= low and index.max() < size)


# ---------------------------------------------------------------------- x[indices]


def _index(x: Array, indices: Sequence[Array], dims: Shape) -> Array:
    if len(indices) == 1:
        found = taken(x, indices[0], dims[0])
        return x.take(indices[0], dims[0]) if found is None else found
    key: list[Any] = [_ALL] * x.ndim
    for index, dim in zip(indices, dims, strict=True):
        key[dim] = index
    return x[tuple(key)]


def _index_shape(x: Array, indices: Sequence[Array], dims: Shape) -> Shape:
    shape = np.broadcast_shapes(*[i.shape for i in indices])
    if dims[-1] - dims[0] == len(dims) - 1:
        return (*x.shape[: dims[0]], *shape, *x.shape[dims[-1] + 1 :])
    return (*shape, *[n for d, n in enumerate(x.shape) if d not in dims])


def _are_inside(x: Array, indices: Sequence[Array], dims: Shape) -> bool:
    return all([in_range(i, x.shape[d], -x.shape[d]) for i, d in zip(indices, dims, strict=True)])


def _all_clipped(x: Array, indices: Sequence[Array], dims: Shape) -> tuple[Any, ...]:
    return x, [np.clip(np.where(i < 0, i + x.shape[d], i), 0, x.shape[d] - 1) for i, d in zip(indices, dims, strict=True)]


def _taken(x: Array, indices: Sequence[Array], dims: Shape) -> Array | None:
    return taken(x, indices[0], dims[0]) if len(indices) == 1 else None


def _first_outside(x: Array, indices: Sequence[Array], dims: Shape) -> Array:
    for place, (i, d) in enumerate(zip(indices, dims, strict=True)):
        n = x.shape[d]
        bad = i[(i < -n) | (i >= n)]
        if bad.size:
            return _outcome(bad, n, place)  # PyTorch counts the index tensors here, not the dimensions
    return RIGHT


index = reading(_index, _index_shape, steps=lambda x, indices, dims: [(Taken(dims[0]), (0, 1))] if len(indices) == 1 else None)
index_checked = reading(_index, _index_shape, _are_inside, _first_outside, _all_clipped, at_once=_taken)
masked_select = Forms(lambda x, indices, shape: _index(np.broadcast_to(x, shape), indices, tuple(range(len(shape)))),
                      lambda x, indices, shape: stand_in(indices[0].shape, x.dtype) if indices and x.size else None, True, picks=True)  # fmt: skip


def _put_back(grad: Array, aval: Aval, x: Array, *indices: Array, shape: Shape) -> Array:
    """The gradient of `masked_select`, whose places are all different: zeros where nothing was read, of what was expanded the sum."""
    whole = np.zeros(shape, grad.dtype)
    whole[indices] = grad
    return expand_vjp.function(whole, aval, shape)


masked_select_vjp = Forms(_put_back, lambda grad, aval, x, *indices, shape: stand_in(aval.shape, grad.dtype) if indices and aval.size else None, True)


# ---------------------------------------------------------------------- x[indices] = values


def _put(x: Array, values: Array, indices: Sequence[Array], dims: Shape, accumulate: bool) -> Array:
    return _put_into(np.array(x, order="C"), values, indices, dims, accumulate)


def _put_into(x: Array, values: Array, indices: Sequence[Array], dims: Shape, accumulate: bool) -> Array:
    """With the first dimensions as one: elements in order, as of several for one place the last counts."""
    x, places = np.ascontiguousarray(x), np.zeros((), np.int64)
    for n, index in zip(x.shape, indices, strict=False):
        index = index.astype(np.int64, copy=False)
        if (accumulate or len(dims) > 1) and not in_range(index, n):  # NumPy counts from the end, too
            index = np.where(index < 0, index + n, index)
        places = index if len(dims) == 1 else places * n + index
    shape = (*places.shape, *x.shape[len(dims) :])
    values = (values if values.shape == shape else np.broadcast_to(values, shape)).reshape(places.size, -1)
    rows = x.reshape(-1, values.shape[1])
    if accumulate:
        add_rows(rows, places.reshape(-1), values)
    else:
        rows[places.reshape(-1)] = values
    return x


def _put_result(x: Array, values: Array, indices: Sequence[Array], dims: Shape, accumulate: bool) -> Any:
    fits = values.dtype == x.dtype and dims == tuple(range(len(dims))) and x.size and all([i.size and i.dtype.kind == "i" for i in indices])
    return stand_in(x.shape, x.dtype) if fits and (not accumulate or x.dtype.kind in "iuf") else None


def _added_at(grad: Array, aval: Aval, *indices: Array, dims: Shape) -> Array:
    """The gradient of `_index`: what was read is added to, in order. Of indices out of range the checked twin tells."""
    shape, count = aval.shape, len(dims)
    if not grad.size:
        return np.zeros(shape, grad.dtype)
    order = (*dims, *[d for d in range(len(shape)) if d not in dims])
    front = order == tuple(range(len(shape)))
    if not front and dims[-1] - dims[0] == count - 1:  # they are where the first of them was
        many = range(len(np.broadcast_shapes(*[i.shape for i in indices])))
        grad = np.moveaxis(grad, [dims[0] + k for k in many], many)
    inside = [i if in_range(i, shape[d], -shape[d]) else np.clip(i, -shape[d], shape[d] - 1) for i, d in zip(indices, dims, strict=True)]
    found = _put_into(np.zeros([shape[d] for d in order], grad.dtype), grad, inside, tuple(range(count)), True)
    return found if front else found.transpose(np.argsort(order))


def _added_at_result(grad: Array, aval: Aval, *indices: Array, dims: Shape) -> Array | None:
    fits = aval.size and grad.dtype.kind == "f" and all([i.dtype.kind == "i" for i in indices])
    return stand_in(aval.shape, grad.dtype) if fits else None


# The checked twin goes by JAX's function, which writes in place where it may.
index_put = Forms(_put, _put_result, True, _put_into)
index_vjp = Forms(_added_at, _added_at_result, True)


# ---------------------------------------------------------------------- along one dimension


def _rows(x: Array, index: Array, dim: int) -> Array:
    index = index if index.ndim else index.reshape(1)
    found = taken(x, index, dim)
    return x.take(index, dim) if found is None else found


def _rows_shape(x: Array, index: Array, dim: int) -> Shape | None:
    return (*x.shape[:dim], index.size, *x.shape[dim + 1 :]) if x.ndim else None


@lru_cache(1024)
def _grid(shape: Shape) -> list[Array]:
    """For each dimension its places, to be broadcast."""
    return list(np.ogrid[tuple([slice(n) for n in shape])])


def _has_loop(x: Array, index: Array, dim: int) -> bool:
    return index.dtype == np.int64 and index.size > 0 and are_beside(x.shape, index.shape, dim)


def picked_along(x: Array, index: Array, dim: int) -> Array:
    """The elements that `index`, in range, picks along `dim`, at its own place in the other dimensions."""
    if _has_loop(x, index, dim):
        found = along("pick_along", x, index, dim=dim, length=x.shape[dim], told=(index.shape[dim],), shape=index.shape)
        if found is not None:
            return found
    key = _grid(index.shape).copy()
    key[dim] = index
    return x[tuple(key)]


def cut(src: Array, index: Array) -> Array:
    """The part of `src` that `index` says where to put."""
    return src if src.shape == index.shape else src[tuple([slice(n) for n in index.shape])]


def put_along(x: Array | Shape, index: Array, src: Array, dim: int, how: int) -> Array:
    """The `cut` of `src` put at `index`, in range, along `dim` of a copy of an array, or of zeros of this shape. how: what becomes of several for one
    place, as `loops` tells it, or PRODUCT."""
    into, shape, src = ((), x, cut(src, index)) if isinstance(x, tuple) else ((x,), x.shape, cut(src, index))
    if how != PRODUCT and index.dtype == np.int64 and index.size and are_beside(shape, index.shape, dim):
        found = along("put_along", src, index, *into, dim=dim, length=shape[dim], told=(index.shape[dim], how, len(into)), shape=shape)
        if found is not None:
            return found
    out = np.array(x, order="C") if into else np.zeros(shape, src.dtype)
    steps = [n // out.itemsize for n in out.strides]
    places: Any = index.astype(np.int64, copy=False) * steps[dim]
    for d, place in enumerate(_grid(index.shape)):
        if d != dim:
            places = places + place * steps[d]
    if how == LAST:
        out.reshape(-1)[places.reshape(-1)] = src.reshape(-1)
    elif how == SUM:
        add_rows(out.reshape(-1, 1), places.reshape(-1), src.reshape(-1, 1))
    else:
        _FOLDS[how].at(out.reshape(-1), places.reshape(-1), src.reshape(-1))
    return out


def _along_shape(x: Array, index: Array, dim: int) -> Shape | None:
    return index.shape if x.ndim and index.ndim and index.size else None


def _inside(x: Array, index: Array, dim: int) -> bool:
    return in_range(index, x.shape[dim])


def clipped_along(x: Array, index: Array, dim: int) -> tuple[Array, Array]:
    return x, np.clip(index, 0, max(x.shape[dim] - 1, 0))


def outside_along(x: Array, index: Array, dim: int, lowest: int = 0) -> Array:
    size = x.shape[dim]
    return _outcome(index[(index < lowest) | (index >= size)], size, dim)


index_select, index_select_checked = reading(_rows, _rows_shape), reading(_rows, _rows_shape, _inside, outside_along, clipped_along)
gather, gather_checked = reading(picked_along, _along_shape), reading(picked_along, _along_shape, _inside, outside_along, clipped_along)


_FLAT: dict[str, Any] = {
    "read": lambda x, index: x.reshape(-1).take(index),
    "shape_of": lambda x, index: index.shape if index.dtype.kind == "i" else None,
}
take = reading(**_FLAT)
take_checked = reading(
    **_FLAT, inside=lambda x, index: in_range(index, x.size, -x.size),
    outcome=lambda x, index: _outcome(index[(index < -x.size) | (index >= x.size)], x.size, 0),
    clipped=lambda x, index: (x, np.clip(index, -x.size, x.size - 1)),
)  # fmt: skip


# ---------------------------------------------------------------------- added along one dimension


def with_twin(write: Callable[..., Array], shape_of: Callable[..., Shape | None]) -> tuple[Forms, Forms]:
    """The forms of an operator that writes to places along `dim`, the second operand, and of its checked twin."""
    return reading(write, shape_of, picks=False), reading(
        write, shape_of, lambda x, index, *_, dim, **__: _inside(x, index, dim), lambda x, index, *_, dim, **__: outside_along(x, index, dim),
        lambda x, index, *rest, dim, **_: (*clipped_along(x, index, dim), *rest), False,
    )  # fmt: skip


def _can_add(x: Array, index: Array, source: Array) -> bool:
    """Complex numbers are JAX's: their products with `alpha` tell infinite parts apart."""
    return x.dtype.kind in "iuf" and source.dtype == x.dtype and index.dtype.kind in "iu" and bool(x.size and index.size)


def _with_rows(x: Array, index: Array, source: Array, alpha: Any, dim: int) -> Array:
    out = np.array(x, order="C")
    source = source if alpha == 1 else source * x.dtype.type(alpha)
    add_rows(out.reshape(len(x), -1), index, source.reshape(index.size, -1))
    return out


def _with_rows_shape(x: Array, index: Array, source: Array, alpha: Any, dim: int) -> Shape | None:
    fits = index.ndim == 1 and x.ndim > 0 and dim == 0 and source.shape == (index.size, *x.shape[1:])
    return x.shape if fits and _can_add(x, index, source) else None


def _with_elements(x: Array, index: Array, src: Array, dim: int) -> Array:
    return put_along(x, index, src, dim, SUM)


def _with_elements_shape(x: Array, index: Array, src: Array, dim: int) -> Shape | None:
    return x.shape if x.ndim == index.ndim == src.ndim > 0 and _can_add(x, index, src) else None


def _gathered_result(grad: Array, aval: Aval, index: Array) -> Array | None:
    fits = aval.ndim == index.ndim > 0 and grad.dtype.kind == "f" and index.dtype.kind in "iu" and aval.size and index.size
    return stand_in(aval.shape, grad.dtype) if fits else None


index_add, index_add_checked = with_twin(_with_rows, _with_rows_shape)


@cache
def index_add_grads(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of the `wanted` ones of what is added to and what is added."""

    def function(grad: Array, avals: Sequence[Aval], *saved: Any, dim: int) -> Any:
        made = {"self": grad}
        if "source" in wanted:
            index, source, alpha = saved
            rows = grad.take(clipped_along(grad, index, dim)[1].reshape(-1), dim).reshape(source.shape)
            made["source"] = rows if alpha == 1 else rows * grad.dtype.type(alpha)
        return made[wanted[0]] if len(wanted) == 1 else tuple([made[name] for name in wanted])

    def result(grad: Array, avals: Sequence[Aval], *saved: Any, dim: int) -> Any:
        fits = grad.ndim and grad.size and grad.dtype.kind == "f" and all([aval.dtype == grad.dtype for aval in avals])
        if not fits or (saved and not (saved[0].size and saved[0].dtype.kind in "iu" and saved[2].dtype.kind in "biuf")):
            return None
        made = [stand_in(aval.shape, grad.dtype) for aval in avals]
        return made[0] if len(made) == 1 else tuple(made)

    return Forms(function, result)


scatter_add, scatter_add_checked = with_twin(_with_elements, _with_elements_shape)
# Their gradients are added where they were read.
index_select_vjp = Forms(
    lambda grad, aval, index, dim: _added_at(grad, aval, index.reshape(-1), dims=(dim,)),
    lambda grad, aval, index, dim: _added_at_result(grad, aval, index, dims=(dim,)) if aval.ndim else None, True,
)  # fmt: skip
gather_vjp = Forms(
    lambda grad, aval, x, index, dim: put_along(aval.shape, clipped_along(x, index, dim)[1], grad, dim, SUM),
    lambda grad, aval, x, index, dim: _gathered_result(grad, aval, index), True,
)  # fmt: skip


# ---------------------------------------------------------------------- how often


def _counted(x: Array, weights: Array | None, length: int) -> Array:
    return np.bincount(x, weights, length)


def _counted_result(x: Array, weights: Array | None, length: int) -> Any:
    if weights is not None and weights.dtype != np.float64:  # NumPy adds in float64
        return None
    return None if x.dtype == np.uint64 else stand_in((length,), np.dtype(np.int64 if weights is None else np.float64))


bincount = Forms(_counted, _counted_result, True)


# ---------------------------------------------------------------------- rows of a table


def _embedded(weight: Array, indices: Array, padding_idx: int, scale_grad_by_freq: bool) -> Array:
    return weight.take(indices, 0)


def _embedded_shape(weight: Array, indices: Array, padding_idx: int, scale_grad_by_freq: bool) -> Shape | None:
    return (*indices.shape, *weight.shape[1:]) if indices.size else None


def _are_rows(weight: Array, indices: Array, **_: Any) -> bool:
    return in_range(indices, weight.shape[0])


def _no_row(weight: Array, indices: Array, **_: Any) -> Array:
    return np.array([1, indices[(indices < 0) | (indices >= weight.shape[0])][0]], np.int64)


def _rows_clipped(weight: Array, indices: Array, **_: Any) -> tuple[Array, Array]:
    return weight, np.clip(indices, 0, weight.shape[0] - 1)


def added_rows(grad: Array, weight: Aval, indices: Array, padding_idx: int, scale_grad_by_freq: bool) -> Array:
    found, rows = np.zeros(weight.shape, grad.dtype), weight.shape[0]
    updates = np.ascontiguousarray(grad).reshape(indices.size, -1)
    places = indices.reshape(-1)
    if not in_range(places, rows):  # which the checked twin tells of
        kept = (places >= -rows) & (places < rows)
        places, updates = places[kept], updates[kept]
        places = np.where(places < 0, places + rows, places)
    add_rows(found.reshape(rows, -1), places, updates)
    if padding_idx >= 0:
        found[padding_idx] = 0
    return found


def _added_rows_result(grad: Array, weight: Aval, indices: Array, padding_idx: int, scale_grad_by_freq: bool) -> Array | None:
    fits = indices.size and weight.size and grad.dtype.char in "fd" and not scale_grad_by_freq
    return stand_in(weight.shape, grad.dtype) if fits else None


embedding_vjp = Forms(added_rows, _added_rows_result, True)
embedding = reading(_embedded, _embedded_shape)
embedding_checked = reading(_embedded, _embedded_shape, _are_rows, _no_row, _rows_clipped)


# ---------------------------------------------------------------------- order


def order_of(x: Array, dim: int, descending: bool) -> Array:
    """The indices that sort along `dim`, equal elements in their order; nan is the largest."""
    found = _ordered(x, x.shape[dim], dim, descending, False)
    if found is not None:
        return found[1]
    if not descending:
        return x.argsort(dim, "stable")
    mirror = (*(_ALL,) * (dim % x.ndim), _REVERSED)
    order = x[mirror].argsort(dim, "stable")[mirror]
    return np.subtract(x.shape[dim] - 1, order, out=order)


def _ordered(x: Array, k: int, dim: int, largest: bool, read: bool) -> Any:
    """The first k elements along `dim`, if they are to be `read`, and their indices, by C; None where it does not order them."""
    if x.dtype.char not in _ORDERED:
        return None
    if dim in (-1, x.ndim - 1):
        return ordered(contiguous(x), k, largest, read)
    found = ordered(contiguous(np.moveaxis(x, dim, -1)), k, largest, read)
    return None if found is None else [None if made is None else contiguous(np.moveaxis(made, -1, dim)) for made in found]


def are_few(x: Array, dim: int) -> bool:
    return -x.ndim <= dim < x.ndim and 0 < x.size <= _FEW and x.dtype.kind in "fiub" and x.dtype.isbuiltin == 1


def _is_ordered(x: Array, dim: int) -> bool:
    """Whether elements are ordered here: few, or those that C orders."""
    return are_few(x, dim) or bool(blocks.by_numbers and x.size and x.dtype.char in _ORDERED and -x.ndim <= dim < x.ndim)


def _pair(x: Array, shape: Shape) -> tuple[Array, Array]:
    return stand_in(shape, x.dtype), stand_in(shape, np.dtype(np.int64))


def _sorted(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    return _topk(x, x.shape[dim], dim, descending, True)


def _topk(x: Array, k: int, dim: int, largest: bool, sorted: bool) -> tuple[Array, Array]:
    found = _ordered(x, k, dim, largest, True)
    if found is not None:
        return found
    order = order_of(x, dim, largest)
    if k < x.shape[dim]:
        order = order[(*(_ALL,) * (dim % x.ndim), slice(k))]
    return picked_along(x, order, dim), order


def _topk_result(x: Array, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    if not _is_ordered(x, dim) or not x.ndim or not 0 < k <= x.shape[dim]:
        return None
    dim %= x.ndim
    return _pair(x, (*x.shape[:dim], k, *x.shape[dim + 1 :]))


def _ordering(each: float, single: float, double: float) -> dict[str, Any]:
    """What ordering takes, for each element, in nanoseconds, and by XLA, of up to 32 bits and of 64."""

    def by_xla(x: Array, *_: Any, **__: Any) -> float:
        return x.size * (single if x.dtype.itemsize <= 4 else double)

    return {"takes": by_xla, "fused": lambda x, *_, **__: x.size * each - by_xla(x)}


_SORTING, _SELECTING = _ordering(8.0, 75.0, 350.0), _ordering(1.0, 5.0, 300.0)
sort = Forms(_sorted, lambda x, dim, descending: _pair(x, x.shape) if _is_ordered(x, dim) else None, True, **_SORTING)
topk = Forms(_topk, _topk_result, True, **_SELECTING)
argsort = Forms(lambda x, dim, descending, stable: order_of(x, dim, descending),
                lambda x, dim, **_: stand_in(x.shape, np.dtype(np.int64)) if _is_ordered(x, dim) else None, True, **_SORTING)  # fmt: skip


# ---------------------------------------------------------------------- search


def _searched(sequence: Array, values: Array, sorter: Array | None, out_int32: bool, right: bool) -> Array:
    kind = promotion.promote_types(sequence.dtype, values.dtype)
    if sorter is not None:
        sequence = np.take_along_axis(sequence, sorter, -1)
    sequence, values = np.ascontiguousarray(converted(sequence, kind)), np.asarray(converted(values, kind), order="C")
    places = searched(sequence, values, right)
    if places is None:
        rows = sequence.reshape(-1, sequence.shape[-1])
        sought = values.reshape(len(rows), -1)
        span = np.zeros(sought.shape, np.int64), np.full(sought.shape, rows.shape[-1], np.int64)
        for _ in range(rows.shape[-1].bit_length()):
            span = halved(np, rows, sought, right, span)
        places = span[0].reshape(values.shape)
    return places.astype(np.int32 if out_int32 else np.int64, copy=False)


def halved(xp: Any, rows: Any, values: Any, right: bool, span: tuple[Any, Any]) -> tuple[Any, Any]:
    """Half of where in rows (b, n), each of them sorted, values (b, m) would be put, int64: from and to. As PyTorch halves it: so NaN, and rows that
    are in no order, give what they give there. xp: numpy or jax.numpy."""
    start, end = span
    middle = start + (end - start) // 2
    at = xp.take_along_axis(rows, xp.minimum(middle, rows.shape[-1] - 1), -1)
    before = (at > values) if right else (at >= values)
    return xp.where(before | (start >= end), start, middle + 1), xp.where(before, middle, end)


def _searched_result(sequence: Array, values: Array, sorter: Array | None, out_int32: bool, right: bool) -> Array | None:
    plain = sequence.dtype.kind in "iuf" and values.dtype.kind in "iuf" and sequence.size and values.size and sequence.ndim
    return stand_in(values.shape, np.dtype(np.int32 if out_int32 else np.int64)) if plain else None


def _searching(sequence: Array, values: Array, *_: Any, **__: Any) -> float:
    """What searching takes by XLA, in nanoseconds."""
    return 20.0 * values.size


searchsorted = Forms(_searched, _searched_result, True, takes=_searching, fused=lambda *given, **statics: -0.75 * _searching(*given, **statics))
