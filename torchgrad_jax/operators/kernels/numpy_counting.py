"""Quantiles and histograms: their forms on NumPy arrays. See `declaration/numpy_forms.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_placing import without
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.native.handlers import searched
from torchgrad_jax.runtime.operation import stand_in

Array = np.ndarray
Shape = tuple[int, ...]
# Of a float32 as many can be counted.
_COUNTABLE = 1 << 24
# What an element takes to be sorted, in nanoseconds, as XLA takes as well.
_SORTED = 5.0
# Rows of so many elements are not put in order for a few of them.
_MANY, _FEW_PLACES = 1 << 9, 8


# ---------------------------------------------------------------------- quantiles


def _at_places(rows: Array, places: list[int]) -> Array:
    """Rows whose elements at these places are those that they have in order. They are not written to."""
    values = np.array(rows, order="C")
    if values.shape[-1] < _MANY or len(places) > _FEW_PLACES:
        values.sort(-1)
    else:
        values.partition(places, -1)
    return values


def _between(values: Array, below: Any, above: Any, rank: Any, interpolation: str) -> Array:
    """What is between two elements of each row, or at the one that `rank` is."""
    low = values[..., below]
    if interpolation not in ("linear", "midpoint"):
        return low
    weight = rank - np.floor(rank) if interpolation == "linear" else rank * rank.dtype.type(0) + rank.dtype.type(0.5)
    high, one = values[..., above], weight.dtype.type(1)
    way = high - low
    if not weight.ndim:
        return low + weight * way if weight < 0.5 else high - way * (one - weight)
    return np.where(weight < 0.5, low + weight * way, high - way * (one - weight))


def _of_numbers(rows: Array, q: Array, interpolation: str) -> Array:
    """Each row's quantiles where NaN are left out."""
    values = np.sort(rows, -1)
    among = values.shape[-1] - 1 - np.count_nonzero(values != values, -1)[..., None]
    rank = np.maximum(np.atleast_1d(q) * among.astype(rows.dtype), rows.dtype.type(0))
    rank = _ROUNDED.get(interpolation, np.positive)(rank)
    low, high = [np.take_along_axis(values, to(rank).astype(np.int64), -1) for to in (np.floor, np.ceil)]
    both, own = np.stack([low, high], -1), np.stack([rank], -1)
    found = _between(both, slice(1), slice(1, 2), own, interpolation)[..., 0]
    return np.moveaxis(found, -1, 0) if q.ndim else found[..., 0]


_ROUNDED = {"lower": np.floor, "higher": np.ceil, "nearest": np.rint}


def _quantiles(x: Array, q: Array, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Array:
    shape = shape_of_quantiles(x.shape, q.shape, dim, keepdim)
    rows = x.reshape(-1) if dim is None else x if dim == x.ndim - 1 else np.moveaxis(x, dim, -1)
    most, q = np.maximum.reduce(rows, -1), q if q.dtype == x.dtype else q.astype(x.dtype)
    lost = most != most
    some = bool(np.logical_or.reduce(lost, None))
    if some and ignore_nan:
        return _of_numbers(rows, q, interpolation).reshape(shape)
    rank = q * x.dtype.type(rows.shape[-1] - 1)
    if interpolation in _ROUNDED:
        rank = _ROUNDED[interpolation](rank)
    if q.ndim:
        below, above = np.floor(rank).astype(np.int64), np.ceil(rank).astype(np.int64)
        made = _between(_at_places(rows, sorted({*below.tolist(), *above.tolist()})), below, above, rank, interpolation)
        made = made.transpose(made.ndim - 1, *range(made.ndim - 1))
    else:
        low, high = int(rank), math.ceil(rank)
        made = _between(_at_places(rows, [low, high]), low, high, rank, interpolation)
    if some:
        made = np.where(lost, most, made)
    return made.reshape(shape)


def shape_of_quantiles(shape: Shape, q: Shape, dim: int | None, keepdim: bool) -> Shape:
    """Of quantiles of a vector `q` the first dimension is theirs."""
    return (*q, *((1,) * len(shape) if dim is None and keepdim else () if dim is None or not shape else without(shape, dim, keepdim)))


def _quantiles_result(x: Array, q: Array, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Array | None:
    fits = x.dtype.char in "fd" and x.size and q.ndim <= 1 and (not q.ndim or q.dtype == x.dtype) and (x.ndim or dim is None)
    return stand_in(shape_of_quantiles(x.shape, q.shape, dim, keepdim), x.dtype) if fits else None


quantile = Forms(_quantiles, _quantiles_result, True, each=_SORTED)


# ---------------------------------------------------------------------- histograms


def _sought(column: Array, edges: Array, even: bool) -> Array:
    """How many edges but the first are not greater than each element, of those between the first and the last. even: they are known to be equally far
    apart."""
    parts = len(edges) - 1
    first, width = edges[0], (edges[-1] - edges[0]) / edges.dtype.type(parts)
    if even or (width > 0 and (np.abs(edges - (first + width * np.arange(parts + 1, dtype=edges.dtype))) < width / 4).all()):
        # Equally wide ones, nearly: one beside it may be the right one.
        place = ((column - first) / width).astype(np.int64)
        np.minimum(np.maximum(place, 0, out=place), parts - 1, out=place)
        place -= column < edges.take(place)
        place += column >= edges[1:].take(place, mode="clip")
        return place
    found = searched(np.ascontiguousarray(edges), np.ascontiguousarray(column), True)
    return (np.searchsorted(edges, column, "right") if found is None else found) - 1


def counted(columns: Array, weight: Array | None, edges: Sequence[Array], even: bool = False) -> Array:
    """How many rows, given column by column, are in each cell between the edges of each column, or the sum of their weights. even: see `_sought`."""
    place = inside = None
    with np.errstate(all="ignore"):
        for column, e in zip(columns, edges, strict=True):
            parts = len(e) - 1
            within = None if even else (column >= e[0]) & (column <= e[-1])
            found = np.minimum(np.maximum(_sought(column, e, even), 0), parts - 1)
            place = found if place is None else place * parts + found
            inside = within if inside is None else inside & within
    assert place is not None
    shape = tuple([len(e) - 1 for e in edges])
    if inside is not None and not np.logical_and.reduce(inside):
        place, weight = place[inside], None if weight is None else weight[inside]
    return np.bincount(place, weight, math.prod(shape)).astype(columns.dtype).reshape(shape)


def _histogram_result(x: Array, weight: Array | None, edges: Sequence[Array]) -> Array | None:
    fits = x.dtype.char in "fd" and x.ndim == 2 and 0 < x.size < _COUNTABLE and len(edges) == x.shape[1]
    fits = fits and all([e.ndim == 1 and e.size > 1 and e.dtype == x.dtype for e in edges])
    if not fits or (weight is not None and (weight.dtype != np.float64 or weight.shape != x.shape[:1])):  # NumPy adds in float64
        return None
    return stand_in(tuple([e.size - 1 for e in edges]), x.dtype)


histogramdd = Forms(lambda x, weight, edges: counted(np.ascontiguousarray(x.T), weight, edges), _histogram_result, True)
