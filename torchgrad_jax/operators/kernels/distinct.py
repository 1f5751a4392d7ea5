"""Distinct elements and slices of NumPy arrays, in order."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray
# Integers are counted where there are at most so many numbers between them for each element, or so many.
_APART, _FEW = 4, 256
# Of so many columns at most rows are ordered column by column.
_COLUMNS = 16


def distinct(array: Array, inverse: bool, counts: bool) -> tuple[Any, Any, Any]:
    """The distinct elements in order, and where asked the place of each element among them and how often each is there. NaN are all distinct."""
    flat = array.reshape(-1)
    if flat.dtype.kind in "iu" and flat.size:
        low, high = int(np.minimum.reduce(flat)), int(np.maximum.reduce(flat))
        if high - low < max(_APART * flat.size, _FEW) and low > -(2**62) and high < 2**62:
            return _counted(flat, array.shape, low, inverse)
    order = flat.argsort(kind="stable") if inverse else None
    ranked = np.sort(flat) if order is None else flat[order]
    first = np.empty(flat.size, bool)
    first[:1] = True
    np.not_equal(ranked[1:], ranked[:-1], out=first[1:])
    places = None if order is None else _places(first, order).reshape(array.shape)
    return ranked[first], places, _lengths(first) if counts else None


def _counted(flat: Array, shape: tuple[int, ...], low: int, inverse: bool) -> tuple[Any, Any, Any]:
    numbers = flat.astype(np.int64)
    numbers -= low
    found = np.bincount(numbers)
    values = found.nonzero()[0]
    places = None
    if inverse:
        among = np.add.accumulate(found != 0, dtype=np.int64)
        among -= 1
        places = among.take(numbers).reshape(shape)
    counts = found.take(values)
    values += low
    return values.astype(flat.dtype, copy=False), places, counts


def _lengths(first: Array) -> Array:
    """Of runs, which begin where this is true."""
    begins = first.nonzero()[0]
    found = np.empty(begins.size, np.int64)
    if begins.size:
        np.subtract(begins[1:], begins[:-1], out=found[:-1])
        found[-1] = first.size - begins[-1]
    return found


def _places(first: Array, order: Array) -> Array:
    """The place among distinct ones of what lies in this order, whose first ones of a kind are told."""
    among = np.add.accumulate(first, dtype=np.int64)
    among -= 1
    found = np.empty(order.size, np.int64)
    found[order] = among
    return found


def _as_numbers(columns: Array) -> Array | None:
    """Rows of integers, given column by column, each as one number in the same order; None where these do not fit."""
    low, high = np.minimum.reduce(columns, 1).tolist(), np.maximum.reduce(columns, 1).tolist()
    found, room = np.zeros(columns.shape[1], np.int64), 1
    for column, least, most in zip(columns, low, high, strict=True):
        room *= most - least + 1
        if room >= 2**62 or not -(2**62) < least <= most < 2**62:
            return None
        found *= most - least + 1
        found += column.astype(np.int64) - least
    return found


def distinct_slices(array: Array, axis: int) -> tuple[Any, Any, Any]:
    """The distinct slices along a dimension in order, the place of each slice among them, and how often each is there."""
    rows = np.moveaxis(array, axis, 0)
    flat, kind = rows.reshape(len(rows), -1), array.dtype.kind
    if flat.size and kind in "iub" or (kind == "f" and flat.size and flat.shape[1] <= _COLUMNS and not np.isnan(flat).any()):
        columns = np.ascontiguousarray(flat.T)
        numbers = _as_numbers(columns.view(np.uint8) if kind == "b" else columns) if kind in "iub" else None
        if numbers is not None:
            order = numbers.argsort(kind="stable")
            ranked = numbers[order]
            first = np.empty(order.size, bool)
            np.not_equal(ranked[1:], ranked[:-1], out=first[1:])
        elif flat.shape[1] <= _COLUMNS:
            order = np.lexsort(columns[::-1])
            first = np.empty(order.size, bool)
            ordered = flat[order]
            np.logical_or.reduce(ordered[1:] != ordered[:-1], 1, out=first[1:])
        else:
            return _by_numpy(array, axis)
        first[:1] = True
        return np.moveaxis(rows[order[first]], 0, axis), _places(first, order), _lengths(first)
    return _by_numpy(array, axis)


def _by_numpy(array: Array, axis: int) -> tuple[Any, Any, Any]:
    values, inverse, counts = np.unique(array, return_inverse=True, return_counts=True, axis=axis, equal_nan=False)
    return values, inverse.reshape(-1).astype(np.int64, copy=False), counts.astype(np.int64, copy=False)


def without_repetitions(array: Array, axis: int | None, inverse: bool) -> tuple[Any, Any, Any]:
    """The elements, or slices along a dimension, without direct repetitions, if asked the place of each among them, and how often each is there."""
    rows = array.reshape(-1) if axis is None else np.moveaxis(array, axis, 0)
    n = len(rows)
    first = np.empty(n, bool)
    first[:1] = True
    if rows.ndim == 1:
        np.not_equal(rows[1:], rows[:-1], out=first[1:])
    elif n > 1:
        np.logical_or.reduce((rows[1:] != rows[:-1]).reshape(n - 1, -1), 1, out=first[1:])
    places = None
    if inverse:
        places = np.add.accumulate(first, dtype=np.int64)
        places -= 1
        places = places.reshape(array.shape if axis is None else -1)
    values = rows[first]
    return values if axis is None else np.moveaxis(values, 0, axis), places, _lengths(first)
