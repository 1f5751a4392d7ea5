"""Reductions, cumulative operations and sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.baseline.blocks import SINGLE, converted, widened
from torchgrad_jax.runtime.baseline.carrying import Reduced
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.cost import CHEAP, SORTED, elements
from torchgrad_jax.runtime.baseline.rules import AnySizes, Same, Unknown, is_floating, is_half, rule
from torchgrad_jax.runtime.native import reducing

# ---------------------------------------------------------------------- reductions


def _reduced(eqn: Any) -> tuple[tuple[int, ...], int]:
    """The dimensions that are reduced, and how many elements become one each time."""
    axes = tuple(eqn.params["axes"])
    return axes, math.prod([eqn.invars[0].aval.shape[d] for d in axes])


def _as_it_is(axes: tuple[int, ...]) -> Any:
    return AnySizes(lambda x: x.squeeze(axes)) if axes else Same()


@rule("reduce_sum", "reduce_prod")
def _sum(eqn: Any) -> Any:
    """Sums in float32 where the dtype is half precision."""
    axes, count = _reduced(eqn)
    dtype = eqn.outvars[0].aval.dtype
    if count == 1:
        return _as_it_is(axes)
    work = SINGLE if is_half(dtype) else dtype
    total = summing(axes, work) if eqn.primitive.name == "reduce_sum" else multiplying(axes, work)
    return AnySizes((lambda x: converted(total(widened(x)), dtype)) if is_half(dtype) else total)


@cache
def summing(axes: tuple[int, ...], dtype: np.dtype) -> Any:
    """What sums arrays of `dtype` over these dimensions."""
    return _by_loops(reducing.SUM, axes, dtype, lambda x: np.add.reduce(contiguous(x), axes, dtype))  # the bits are those of a copy


@cache
def multiplying(axes: tuple[int, ...], dtype: np.dtype) -> Any:
    """What multiplies the elements of arrays of `dtype` over these dimensions."""
    return _by_loops(reducing.PRODUCT, axes, dtype, lambda x: np.multiply.reduce(x, axes, dtype))


_MUCH = 1 << 17


def is_by_loops(eqn: Any) -> bool:
    """Whether an equation is a sum or an extreme of so much that C's loops share it, which XLA's programs call as well."""
    name, given = eqn.primitive.name, eqn.invars[0].aval
    return name in ("reduce_sum", "reduce_max", "reduce_min") and given.size >= _MUCH and _has_loops(eqn.outvars[0].aval.dtype, "fd")


def _has_loops(dtype: np.dtype, letters: str) -> bool:
    return blocks.by_numbers and dtype.char in letters


# Of which dtypes there are loops; those of int64 have two letters.
_LETTERS = {reducing.SUM: "fdlq", reducing.PRODUCT: "fd", reducing.LARGEST: "fd?", reducing.SMALLEST: "fd?"}


def runs(axes: Sequence[int]) -> list[tuple[int, int]]:
    """The runs of neighbouring dimensions, the last one first: where each begins, and ends."""
    found = list[tuple[int, int]]()
    for d in sorted(axes, reverse=True):
        if found and found[-1][0] == d + 1:
            found[-1] = (d, found[-1][1])
        else:
            found.append((d, d + 1))
    return found


def _by_loops(which: int, axes: tuple[int, ...], dtype: np.dtype, otherwise: Any) -> Any:
    """By C's loops, one run of neighbouring dimensions after the other, the last one first; or otherwise."""
    if not axes or not _has_loops(dtype, _LETTERS[which]):
        return otherwise
    return Reduced(which, runs(axes), otherwise)


@rule("reduce_or", "reduce_and", "reduce_xor")
def _bitwise(eqn: Any) -> Any:
    axes, _ = _reduced(eqn)
    reduce = {"reduce_or": np.bitwise_or, "reduce_and": np.bitwise_and, "reduce_xor": np.bitwise_xor}[eqn.primitive.name].reduce
    dtype, name = eqn.outvars[0].aval.dtype, eqn.primitive.name
    otherwise = lambda x: reduce(x, axes, dtype)  # noqa: E731 - one of several functions of arrays
    if dtype != np.bool_ or name == "reduce_xor":
        return AnySizes(otherwise)
    return AnySizes(_by_loops(reducing.LARGEST if name == "reduce_or" else reducing.SMALLEST, axes, dtype, otherwise))


@rule("reduce_max", "reduce_min")
def _extreme(eqn: Any) -> Any:
    (axes, count), dtype = _reduced(eqn), eqn.outvars[0].aval.dtype
    largest = eqn.primitive.name == "reduce_max"
    if dtype.kind == "c":
        raise Unknown("order of complex numbers")
    if count == 1:
        return _as_it_is(axes)
    reduce = (np.maximum if largest else np.minimum).reduce
    if not eqn.invars[0].aval.size:
        start = neutral(dtype, largest)
        return AnySizes(lambda x: reduce(x, axes, initial=start))
    if not is_floating(dtype):
        return AnySizes(lambda x: reduce(x, axes))
    otherwise = _with_signs(lambda x: reduce(x, axes), lambda x: np.logical_or.reduce(x, axes), largest)
    extreme = _by_loops(reducing.LARGEST if largest else reducing.SMALLEST, axes, SINGLE if is_half(dtype) else dtype, otherwise)
    return AnySizes((lambda x: converted(extreme(widened(x)), dtype)) if is_half(dtype) else extreme)


def neutral(dtype: np.dtype, largest: bool) -> Any:
    """What the largest, or smallest, of nothing is."""
    if dtype.kind == "b":
        return not largest
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array(info.min if largest else info.max, dtype)
    return np.array(-np.inf if largest else np.inf, dtype)


def _with_signs(extreme: Any, any_of: Any, largest: bool) -> Any:
    """Where the largest is a zero, it is 0.0 if there is one, whichever NumPy took; the smallest is -0.0 if there is one."""

    def run(x: Any) -> Any:
        found = extreme(x)
        if np.count_nonzero(found) == found.size:
            return found
        zero = np.equal(x, 0)
        positive, negative = any_of(zero & ~np.signbit(x)), any_of(zero & np.signbit(x))
        sign = np.where(positive if largest else ~negative, np.ones((), found.dtype), np.array(-1, found.dtype))
        return np.where(np.equal(found, 0), np.copysign(found, sign), found)

    return run


@rule("argmax", "argmin")
def _place_of_extreme(eqn: Any) -> Any:
    """The first of several; a NaN is larger, and smaller, than anything else. NumPy has it so too."""
    dtype = np.dtype(eqn.params["index_dtype"])
    if len(eqn.params["axes"]) != 1 or eqn.invars[0].aval.dtype.kind == "c":
        raise Unknown(eqn.primitive.name)
    (axis,) = eqn.params["axes"]
    largest = eqn.primitive.name == "argmax"
    if is_half(eqn.invars[0].aval.dtype):
        find = np.argmax if largest else np.argmin
        return AnySizes(lambda x: find(widened(x), axis).astype(dtype))
    if largest:  # methods take half of what the functions take
        return AnySizes(lambda x: x.argmax(axis).astype(dtype, copy=False))
    return AnySizes(lambda x: x.argmin(axis).astype(dtype, copy=False))


# ---------------------------------------------------------------------- cumulative operations


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", each=4 * CHEAP)
def _cumulative(eqn: Any) -> Any:
    axis, dtype, name = eqn.params["axis"], eqn.outvars[0].aval.dtype, eqn.primitive.name
    accumulate = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum, "cumlogsumexp": np.logaddexp}[name].accumulate
    if dtype.kind == "c" and name not in ("cumsum", "cumprod"):
        raise Unknown("order of complex numbers")
    if name in ("cummax", "cummin"):
        forward = lambda x: accumulate(x, axis)  # noqa: E731 - one of several functions of arrays
        if is_floating(dtype):
            forward = _with_signs(forward, lambda x: np.logical_or.accumulate(x, axis), name == "cummax")
    elif is_half(dtype):
        forward = lambda x: converted(accumulate(widened(x), axis, np.float32), dtype)  # noqa: E731
    else:
        forward = lambda x: accumulate(x, axis, dtype)  # noqa: E731
    return AnySizes((lambda x: np.flip(forward(np.flip(x, axis)), axis)) if eqn.params["reverse"] else forward)


# ---------------------------------------------------------------------- sorting


def _sorting(eqn: Any) -> float:
    shape = eqn.invars[0].aval.shape
    axis = eqn.params.get("dimension", -1)
    return (2000.0 if len(eqn.invars) == 1 else 15_000.0) + SORTED * elements(eqn) * (1 + math.log2(max(shape[axis], 1))) * len(eqn.invars)


def _key(dtype: np.dtype) -> Any:
    """What makes an array one that NumPy sorts as XLA does: with NaN last."""
    if dtype.kind == "c":
        raise Unknown("order of complex numbers")
    return (lambda x: x.astype(np.float32)) if dtype.kind == "V" else (lambda x: x)


@rule("sort", cost=_sorting)
def _sort(eqn: Any) -> Any:
    axis, count = eqn.params["dimension"], eqn.params["num_keys"]
    keys = [_key(v.aval.dtype) for v in eqn.invars[:count]]
    if len(eqn.invars) == 1:
        dtype = eqn.invars[0].aval.dtype
        how = None if dtype.kind in "iub" else "stable"  # equal ones of these are the same: the quickest sort will do
        return AnySizes(lambda x: [np.sort(keys[0](x), axis, kind=how).astype(dtype, copy=False)])
    flat = eqn.invars[0].aval.ndim == 1

    def sort(*arrays: Any) -> list[Any]:
        if count == 1:
            order = np.argsort(keys[0](arrays[0]), axis, kind="stable")
        else:
            order = np.lexsort([key(a) for key, a in zip(keys, arrays, strict=False)][::-1], axis)
        return [a[order] if flat else np.take_along_axis(a, order, axis) for a in arrays]

    return AnySizes(sort)


# From so many elements on each is put into one integer with its place, of which NumPy finds the least by vectors.
_PACKED = 1 << 11
_PLACES = 2**31 - 1


def _top_of_packed(x: Any, count: int, axis: int, dtype: np.dtype) -> list[Any]:
    """`top_k` of float32."""
    moved = np.moveaxis(x, axis, -1)
    bits = (moved + np.float32(0)).view(np.int32)  # without -0
    bits = np.where(bits < 0, bits ^ np.int32(_PLACES), bits)
    bits[np.isnan(moved)] = _PLACES
    keys = (~bits).astype(np.int64) << np.int64(31) | np.arange(moved.shape[-1])
    if count < moved.shape[-1]:
        keys = np.partition(keys, count - 1, -1)[..., :count]
    order = np.moveaxis(np.sort(keys, -1) & _PLACES, -1, axis)
    return [np.take_along_axis(x, order, axis), order.astype(dtype)]


@rule("top_k", cost=_sorting)
def _top_k(eqn: Any) -> Any:
    """The largest first, the first of equal ones first, NaN before all."""
    aval, count, dtype = eqn.invars[0].aval, eqn.params["k"], eqn.outvars[1].aval.dtype
    axis = eqn.params.get("axis", aval.ndim - 1) % aval.ndim
    if aval.dtype == np.float32 and aval.size >= _PACKED and count > 0 and aval.shape[axis] < 2**31:
        return lambda x: _top_of_packed(x, count, axis, dtype)
    key, last = _key(aval.dtype), aval.shape[axis] - 1
    head = (slice(None),) * axis + (slice(count),)

    def top(x: Any) -> list[Any]:
        order = np.argsort(np.flip(key(x), axis), axis, kind="stable")
        order = (last - np.flip(order, axis))[head]
        return [np.take_along_axis(x, order, axis), order.astype(dtype)]

    return top
