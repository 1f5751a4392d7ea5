"""Operators that write at places given by index, and gradients that go back to where something was read: their forms on NumPy arrays. See
`numpy_forms.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration import numpy_forms, numpy_indexing
from torchgrad_jax.declaration.numpy_forms import Array, Shape, by_strides, converted, convertible, strided_places, summed
from torchgrad_jax.declaration.numpy_indexing import (
    PRODUCT,
    added_rows,
    clipped_along,
    cut,
    in_range,
    outside_along,
    picked_along,
    put_along,
    reading,
    with_twin,
)
from torchgrad_jax.declaration.strides import apart
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.indexing import add_rows
from torchgrad_jax.runtime.baseline.loops import LAST, LEAST, LOOPS, MOST, SUM
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

_ALL = slice(None)
_INT64 = np.dtype(np.int64)
# What an element that is written takes, in nanoseconds.
_EACH = 1.5
# What an element takes that is put in its order among others, in nanoseconds.
_ORDERED = 5.0
# Of a float32 as many can be counted.
_COUNTABLE = 1 << 24


def gradient(function: Callable[..., Array], fits: Callable[..., Any], each: float = _EACH) -> Callable[[tuple[str, ...]], Forms]:
    """The `numpy_grads` of an operator one of whose operands has a gradient: of (its gradient, the aval, what is saved..., **statics). each: see
    `Forms`."""

    def result(grad: Array, avals: Sequence[Aval], *saved: Any, **statics: Any) -> Array | None:
        alike = len(avals) == 1 and avals[0].dtype == grad.dtype and grad.dtype.kind == "f"
        return stand_in(avals[0].shape, grad.dtype) if alike and fits(grad, avals[0], *saved, **statics) else None

    form = Forms(lambda grad, avals, *saved, **statics: function(grad, avals[0], *saved, **statics), result, each=each, planned=True)
    return lambda wanted: form


def gradients(
    function: Callable[..., dict[str, Array]], fits: Callable[..., Any], takes: Callable[..., float] | None = None
) -> Callable[[tuple[str, ...]], Forms]:
    """The `numpy_grads` of an operator of whose operands several may have one. function: of (the names that are wanted, the gradient, avals by name,
    what is saved..., **statics) gives these by name. takes: see `Forms`."""

    @cache
    def of(wanted: tuple[str, ...]) -> Forms:
        def made(grad: Array, avals: Sequence[Aval], *saved: Any, **statics: Any) -> Any:
            found = function(wanted, grad, dict(zip(wanted, avals, strict=True)), *saved, **statics)
            return found[wanted[0]] if len(wanted) == 1 else tuple([found[name] for name in wanted])

        def result(grad: Array, avals: Sequence[Aval], *saved: Any, **statics: Any) -> Any:
            alike = grad.dtype.kind == "f" and all([aval.dtype == grad.dtype for aval in avals])
            if not alike or not fits(grad, dict(zip(wanted, avals, strict=True)), *saved, **statics):
                return None
            outs = [stand_in(aval.shape, grad.dtype) for aval in avals]
            return outs[0] if len(outs) == 1 else tuple(outs)

        return Forms(made, result, each=_EACH, takes=takes, planned=True)

    return of


# No element of the result depends on the operand.
zero = gradient(lambda grad, aval, *_, **__: numpy_forms.zeros_like(grad), lambda grad, aval, *_, **__: grad.shape == aval.shape, 0.0)


# ---------------------------------------------------------------------- slices filled


def _filled(x: Array, index: Array, value: Array, dim: int) -> Array:
    """A number in the slices at `index`, which may count from the end."""
    found = np.array(x, order="C")
    found[(*(_ALL,) * dim, index.reshape(-1))] = converted(value, x.dtype)
    return found


def _filled_shape(x: Array, index: Array, value: Array, dim: int) -> Shape | None:
    fits = x.ndim and not value.ndim and index.dtype.kind in "iu" and convertible(value.dtype, x.dtype)
    return x.shape if fits else None


def _from_end(x: Array, index: Array, *_: Any, dim: int) -> bool:
    return in_range(index, x.shape[dim], -x.shape[dim])


def _clipped_from_end(x: Array, index: Array, *rest: Any, dim: int) -> tuple[Any, ...]:
    return x, np.clip(index, -x.shape[dim], x.shape[dim] - 1), *rest


index_fill = reading(_filled, _filled_shape, picks=False)
index_fill_checked = reading(
    _filled, _filled_shape, _from_end, lambda x, index, value, dim: outside_along(x, index, dim, -x.shape[dim]), _clipped_from_end, False
)


def _fill_grads(wanted: tuple[str, ...], grad: Array, avals: dict[str, Aval], index: Array, dim: int) -> dict[str, Array]:
    inside = index if _from_end(grad, index, dim=dim) else _clipped_from_end(grad, index, dim=dim)[1]  # which the checked twin tells of
    left = _filled(grad, inside, np.zeros((), grad.dtype), dim)
    return {"self": left, "value": np.asarray(summed(grad - left, tuple(range(grad.ndim)))) if "value" in wanted else grad}


def _has_filled(grad: Array, avals: dict[str, Aval], index: Array, dim: int) -> bool:
    return grad.ndim > 0 and grad.size > 0 and index.dtype.kind in "iu" and ("value" not in avals or grad.dtype.char in "fd")


index_fill_grads = gradients(_fill_grads, _has_filled)


# ---------------------------------------------------------------------- scatter


def _are_alike(x: Array, index: Array, src: Array) -> bool:
    return x.ndim == index.ndim == src.ndim > 0 and src.dtype == x.dtype and index.dtype.kind in "iu" and index.size > 0


def _scattered(x: Array, index: Array, src: Array, dim: int) -> Array:
    return put_along(x, index, src, dim, LAST)


def _scattered_shape(x: Array, index: Array, src: Array, dim: int) -> Shape | None:
    return x.shape if _are_alike(x, index, src) else None


def _of_value(x: Array, index: Array, value: Array, dim: int) -> Array:
    return put_along(x, index, np.broadcast_to(value, index.shape), dim, LAST)


def _of_value_shape(x: Array, index: Array, value: Array, dim: int) -> Shape | None:
    return x.shape if not value.ndim and _are_alike(x, index, np.broadcast_to(value, index.shape)) else None


scatter_src, scatter_src_checked = with_twin(_scattered, _scattered_shape)
scatter_value, scatter_value_checked = with_twin(_of_value, _of_value_shape)


def _inside(x: Array, index: Array, dim: int) -> Array:
    """Indices in range: of others the checked twin tells."""
    return index if in_range(index, x.shape[dim]) else clipped_along(x, index, dim)[1]


def _cleared(grad: Array, index: Array, dim: int) -> Array:
    return _of_value(grad, index, np.zeros((), grad.dtype), dim)


def _uncut(grad: Array, shape: Shape) -> Array:
    if grad.shape == shape:
        return grad
    found = np.zeros(shape, grad.dtype)
    found[tuple([slice(n) for n in grad.shape])] = grad
    return found


def _scatter_grads(kept: bool) -> Callable[[tuple[str, ...]], Forms]:
    """kept: whether what was there counts as well."""

    def made(wanted: tuple[str, ...], grad: Array, avals: dict[str, Aval], index: Array, dim: int) -> dict[str, Array]:
        index, found = _inside(grad, index, dim), {}
        if "self" in wanted:
            found["self"] = grad if kept else _cleared(grad, index, dim)
        if "src" in wanted:
            found["src"] = _uncut(picked_along(grad, index, dim), avals["src"].shape)
        return found

    return gradients(made, lambda grad, avals, index, dim: grad.size and grad.ndim == index.ndim > 0 and index.size and index.dtype.kind in "iu")


scatter_grads, scatter_add_grads = _scatter_grads(False), _scatter_grads(True)

_FOLDS = {"sum": SUM, "mean": SUM, "amax": MOST, "amin": LEAST, "prod": PRODUCT}
_NEUTRAL = {"sum": 0, "mean": 0, "amax": -np.inf, "amin": np.inf, "prod": 1}


def _counts(like: Array, index: Array, dim: int, include_self: bool) -> Array:
    found = put_along(np.full(like.shape, int(include_self), like.dtype), index, np.ones(index.shape, like.dtype), dim, SUM)
    found[found == 0] = 1
    return found


def _reduced(x: Array, index: Array, src: Array, dim: int, reduce: str, include_self: bool) -> Array:
    start = x if include_self else _of_value(x, index, np.array(_NEUTRAL[reduce], x.dtype), dim)
    made = put_along(start, index, src, dim, _FOLDS[reduce])
    return made / _counts(x, index, dim, include_self) if reduce == "mean" else made


def _reduced_shape(x: Array, index: Array, src: Array, dim: int, reduce: str, include_self: bool) -> Shape | None:
    return x.shape if x.dtype.char in "fd" and reduce in _FOLDS and _are_alike(x, index, src) else None


scatter_reduce, scatter_reduce_checked = with_twin(_reduced, _reduced_shape)
scatter_reduced, scatter_reduced_checked = with_twin(
    lambda x, index, src, dim, reduce: _reduced(x, index, src, dim, reduce, True),
    lambda x, index, src, dim, reduce: _reduced_shape(x, index, src, dim, reduce, True),
)


def _reduce_grads(
    wanted: tuple[str, ...], grad: Array, avals: dict[str, Aval], x: Array, index: Array, src: Array, result: Array, dim: int, reduce: str,
    include_self: bool,
) -> dict[str, Array]:  # fmt: skip
    """Of elements that share an extreme each has an equal part."""
    index = _inside(grad, index, dim)
    src, own, best = cut(src, index), None, None
    if reduce == "mean":
        grad = grad / _counts(grad, index, dim, include_self)
    elif reduce != "sum":
        own, best = x == result, src == picked_along(result, index, dim)
        grad = grad / put_along(own.astype(grad.dtype), index, best.astype(grad.dtype), dim, SUM)
    found = {}
    if "self" in wanted:
        shared = grad if own is None else own * grad
        found["self"] = shared if include_self else _cleared(shared, index, dim)
    if "src" in wanted:
        shared = picked_along(grad, index, dim)
        found["src"] = _uncut(shared if best is None else best * shared, avals["src"].shape)
    return found


scatter_reduce_grads = gradients(_reduce_grads, lambda grad, avals, x, index, src, result, dim, reduce, include_self: (
    grad.size and x.dtype == grad.dtype and reduce != "prod" and _are_alike(x, index, src)))  # fmt: skip


# ---------------------------------------------------------------------- gather of what is counted around


def _picked_around(x: Array, index: Array, dim: int) -> Array:
    return picked_along(x, index % x.shape[dim], dim)


def _picked_around_shape(x: Array, index: Array, dim: int) -> Shape | None:
    return index.shape if x.ndim == index.ndim > 0 and index.size and index.dtype.kind == "i" else None


take_along_dim = reading(_picked_around, _picked_around_shape)
take_along_dim_grads = gradient(
    lambda grad, aval, x, index, dim: put_along(aval.shape, index % aval.shape[dim], grad, dim, SUM),
    lambda grad, aval, x, index, dim: aval.size and aval.ndim == index.ndim > 0 and index.size and index.dtype.kind == "i",
)


# ---------------------------------------------------------------------- x[indices] = values


def _put_grads(
    wanted: tuple[str, ...], grad: Array, avals: dict[str, Aval], *indices: Array, dims: Shape, accumulate: bool
) -> dict[str, Array]:  # fmt: skip
    """Of indices out of range the checked twin tells."""
    sizes = [grad.shape[d] for d in dims]
    inside = [i if in_range(i, n, -n) else np.clip(i, -n, n - 1) for i, n in zip(indices, sizes, strict=True)]
    found = {"self": grad}
    if "self" in wanted and not accumulate:
        key: list[Any] = [_ALL] * grad.ndim
        for i, d in zip(inside, dims, strict=True):
            key[d] = i
        found["self"] = np.array(grad, order="C")
        found["self"][tuple(key)] = 0
    if "values" in wanted:
        found["values"] = numpy_indexing.index.function(grad, inside, dims)
    return found


def _put_grads_fit(grad: Array, avals: dict[str, Aval], *indices: Array, dims: Shape, accumulate: bool) -> bool:
    """Not for values that were broadcast."""
    if not grad.size or len(indices) != len(dims) or not all([i.size and i.dtype.kind == "i" for i in indices]):
        return False
    read = numpy_indexing.index.result(grad, indices, dims)  # type: ignore[misc] - it has one
    return "values" not in avals or read.shape == avals["values"].shape


index_put_grads = gradients(_put_grads, _put_grads_fit)


# ---------------------------------------------------------------------- what was selected along a dimension


def _put_back(how: int) -> Callable[[tuple[str, ...]], Forms]:
    """The gradient of elements that were found along `dim`, at indices that are in range."""

    def made(grad: Array, aval: Aval, *saved: Array, dim: int, keepdim: bool = True, **_: Any) -> Array:
        dim, indices = dim % aval.ndim, saved[-1]
        if not keepdim:
            grad, indices = np.expand_dims(grad, dim), np.expand_dims(indices, dim)
        return put_along(aval.shape, indices, grad, dim, how)

    def fits(grad: Array, aval: Aval, *saved: Array, dim: int, **_: Any) -> bool:
        return grad.size > 0 and aval.ndim > 0 and -aval.ndim <= dim < aval.ndim and saved[-1].dtype == np.int64

    return gradient(made, fits, LOOPS["put_along"])


put_back, put_back_sums = _put_back(LAST), _put_back(SUM)


# ---------------------------------------------------------------------- how often


def _most_frequent(x: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """Of runs of equal elements in order the first of the longest ones; its last place. NaN are no run, and the last ones of all."""
    rows = contiguous(x if dim == x.ndim - 1 else np.moveaxis(x, dim, -1))
    shape, n = rows.shape[:-1], rows.shape[-1]
    rows = rows.reshape(-1, n)
    ranked = rows.copy()
    ranked.sort(-1)
    place, every = np.arange(n), np.arange(len(rows))
    begins = np.empty(ranked.shape, np.int64)
    begins[:, 0] = 0
    np.multiply(ranked[:, 1:] != ranked[:, :-1], place[1:], out=begins[:, 1:])
    length = np.subtract(place, np.maximum.accumulate(begins, 1), out=begins)
    value = ranked[every, length.argmax(1)]
    at = n - 1 - (rows == value[:, None])[:, ::-1].argmax(1)
    lost = value != value
    if np.logical_or.reduce(lost):  # the first of them
        at[lost] = 0
    found = rows[every, at].reshape(shape), at.reshape(shape)
    return tuple([np.expand_dims(a, dim) for a in found]) if keepdim else found  # type: ignore[return-value]


def without(shape: Shape, dim: int, keepdim: bool) -> Shape:
    """The shape of what is found along `dim`."""
    return (*shape[:dim], *((1,) if keepdim else ()), *shape[dim + 1 :])


def _most_frequent_result(x: Array, dim: int, keepdim: bool) -> Any:
    if not x.size or not -x.ndim <= dim < x.ndim or x.dtype.kind not in "fiub" or x.dtype.isbuiltin != 1:
        return None
    shape = without(x.shape, dim % x.ndim, keepdim)
    return stand_in(shape, x.dtype), stand_in(shape, _INT64)


mode = Forms(lambda x, dim, keepdim: _most_frequent(x, dim % x.ndim, keepdim), _most_frequent_result, True, each=_ORDERED)


def _histogram(x: Array, low: Array, high: Array, bins: int) -> Array:
    kind, x = x.dtype.type, x.reshape(-1)
    if low == high:
        low, high = np.minimum.reduce(x), np.maximum.reduce(x)
    low, high = (low - kind(1), high + kind(1)) if low == high else (kind(low), kind(high))
    inside = (x >= low) & (x <= high)
    inside = x if np.logical_and.reduce(inside) else x[inside]
    place = ((inside - low) / (high - low) * kind(bins)).astype(np.int64)
    return np.bincount(np.minimum(np.maximum(place, 0), bins - 1), None, bins).astype(x.dtype)


def _histogram_result(x: Array, low: Array, high: Array, bins: int) -> Array | None:
    fits = x.dtype.char in "fd" and 0 < x.size < _COUNTABLE and bins > 0 and low.dtype == high.dtype == x.dtype
    return stand_in((bins,), x.dtype) if fits else None


histc = Forms(_histogram, _histogram_result, True)
one_hot = Forms(
    lambda x, num_classes: (x[..., None] == np.arange(num_classes)).astype(np.int64),
    lambda x, num_classes: stand_in((*x.shape, num_classes), _INT64) if x.dtype == np.int64 else None, True,
)  # fmt: skip


# ---------------------------------------------------------------------- bags of rows of a table


def _bag(weight: Array, indices: Array, bags: Array, weights: Array | None, count: int, mode: str, **_: Any) -> Array:
    rows = weight.take(indices, 0)
    if weights is not None:
        rows = rows * weights[:, None]
    if not in_range(bags, count):  # what is padding belongs to none
        rows, bags = rows[bags >= 0], bags[bags >= 0]
    if mode == "max":
        found = np.full((count, rows.shape[1]), -np.inf, rows.dtype)
        np.maximum.at(found, bags, rows)
        found[np.bincount(bags, minlength=count) == 0] = 0
        return found
    found = np.zeros((count, rows.shape[1]), rows.dtype)
    add_rows(found, bags, rows)
    return found / _sizes(bags, count, rows.dtype) if mode == "mean" else found


def _sizes(bags: Array, count: int, dtype: np.dtype) -> Array:
    return np.maximum(np.bincount(bags[bags >= 0], minlength=count), 1)[:, None].astype(dtype)


def _bag_shape(weight: Array, indices: Array, bags: Array, weights: Array | None, count: int, **_: Any) -> Shape | None:
    plain = weight.dtype.char in "fd" and weight.ndim == 2 and indices.ndim == 1 and indices.size and count
    return (count, weight.shape[1]) if plain and bags.dtype == np.int64 and indices.dtype.kind == "i" else None


embedding_bag = reading(_bag, _bag_shape, picks=True)
embedding_bag_checked = reading(
    _bag, _bag_shape, lambda weight, indices, *_, **__: in_range(indices, weight.shape[0]),
    lambda weight, indices, *_, **__: np.array([1, indices[(indices < 0) | (indices >= weight.shape[0])][0]], np.int64),
    lambda weight, indices, *rest, **_: (weight, np.clip(indices, 0, weight.shape[0] - 1), *rest),
)  # fmt: skip


def _bag_grad(
    grad: Array, aval: Aval, indices: Array, bags: Array, *weights: Array, count: int, mode: str, padding_idx: int, **_: Any
) -> Array:  # fmt: skip
    rows = (grad / _sizes(bags, count, grad.dtype) if mode == "mean" else grad).take(bags, 0, mode="clip")
    rows[bags < 0] = 0
    return added_rows(rows * weights[0][:, None] if weights else rows, aval, indices, padding_idx, False)


def _bag_grad_fits(grad: Array, aval: Aval, indices: Array, bags: Array, *weights: Array, scale_grad_by_freq: bool, **_: Any) -> bool:
    return grad.size > 0 and indices.size > 0 and indices.ndim == 1 and aval.ndim == 2 and len(weights) < 2 and not scale_grad_by_freq


embedding_bag_grads = gradients(
    lambda wanted, grad, avals, *saved, **statics: {"weight": _bag_grad(grad, avals["weight"], *saved, **statics)},
    lambda grad, avals, *saved, **statics: [*avals] == ["weight"] and _bag_grad_fits(grad, avals["weight"], *saved, **statics),
)


# ---------------------------------------------------------------------- by strides, windows, masks


def _by_strides(x: Array, src: Array, size: Shape, stride: Shape, storage_offset: int | None) -> Array:
    out = np.array(x, order="C")
    into = by_strides(out, size, stride, storage_offset) if apart(size, stride) else None
    if into is None:
        out.reshape(-1)[strided_places(size, stride, storage_offset).reshape(-1)] = src.reshape(-1)
    else:
        into[...] = src
    return out


def _are_inside(x: Array, **how: Any) -> bool:
    assert numpy_forms.as_strided.result is not None
    return numpy_forms.as_strided.result(x, **how) is not None


def _by_strides_result(x: Array, src: Array, size: Shape, stride: Shape, storage_offset: int | None) -> Array | None:
    fits = src.dtype == x.dtype and src.shape == size and _are_inside(x, size=size, stride=stride, storage_offset=storage_offset)
    return stand_in(x.shape, x.dtype) if fits else None


as_strided_scatter = Forms(_by_strides, _by_strides_result, True)


def _from_strides(grad: Array, aval: Aval, size: Shape, stride: Shape, storage_offset: int | None) -> Array:
    found = np.zeros(aval.shape, grad.dtype)
    places = strided_places(size, stride, storage_offset).reshape(-1)
    if apart(size, stride):
        found.reshape(-1)[places] = grad.reshape(-1)
    else:
        add_rows(found.reshape(-1, 1), places, grad.reshape(-1, 1))
    return found


as_strided_grads = gradient(_from_strides, lambda grad, aval, **how: _are_inside(stand_in(aval.shape, grad.dtype), **how))


def _from_windows(grad: Array, aval: Aval, dimension: int, size: int, step: int) -> Array:
    """The sums of what windows of `size` bring to an element, of the first one first."""
    found, count = np.zeros(aval.shape, grad.dtype), grad.shape[dimension]
    before = (_ALL,) * dimension
    for k in reversed(range(size)):
        found[(*before, slice(k, k + (count - 1) * step + 1, step))] += grad[..., k]
    return found


unfold_grads = gradient(_from_windows, lambda grad, aval, dimension, **_: grad.size and aval.ndim and dimension >= 0)


def _masked(x: Array, mask: Array, source: Array) -> tuple[Array, Array]:
    if x.shape != mask.shape:
        shape = np.broadcast_shapes(x.shape, mask.shape)
        x, mask = np.broadcast_to(x, shape), np.broadcast_to(mask, shape)
    out, count = np.array(x, order="C"), np.count_nonzero(mask)
    values, bad = source.reshape(-1), count > source.size
    if count:
        np.place(out, mask, values.take(np.arange(count), mode="clip") if bad else values)
    return out, np.array([bad, count], np.int64)


def _masked_result(x: Array, mask: Array, source: Array) -> Any:
    fits = x.size and mask.size and source.size and source.dtype == x.dtype and mask.dtype == np.bool_
    return (stand_in(np.broadcast_shapes(x.shape, mask.shape), x.dtype), stand_in((2,), _INT64)) if fits else None


masked_scatter = Forms(_masked, _masked_result, True)
