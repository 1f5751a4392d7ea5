"""Functions of C's that XLA's programs and the interpreter call; uncompiled, there are none."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.runtime.native import (
    arrays,
    attending,
    convolving,
    looping,
    multiplying,
    ordering,
    pooling,
    recurring,
    reducing,
    resampling,
    rowwise,
    sampling,
    sharing,
    special,
)

_PLACES = np.dtype(np.int64)


def vector_bits() -> int:
    """See `multiplying.vector_bits`."""
    return multiplying.vector_bits()


def by_thirds() -> bool:
    """See `multiplying.by_thirds`."""
    return multiplying.by_thirds()


def use(single: int, double: int, narrow: bool, bits: int, thirds: bool) -> bool:
    """See `multiplying.use`."""
    return multiplying.use(single, double, narrow, bits, thirds)


def product(minor: int) -> Any:
    """See `multiplying.handler`."""
    return multiplying.handler(minor)


def multiplied(x: Any, y: Any, left: bool, right: bool, bias: Any = None, rest: Any = None, mirrored: bool = False) -> Any:
    """See `multiplying.multiplied`."""
    return multiplying.multiplied(x, y, left, right, bias, rest, mirrored)


def added(x: Any, y: Any, left: bool, right: bool, onto: Any, mirrored: bool = False) -> Any:
    """See `multiplying.added`."""
    return multiplying.added(x, y, left, right, onto, mirrored)


def align() -> None:
    """See `arrays.align`."""
    arrays.align()


def work_alone() -> None:
    """See `sharing.work_alone`."""
    sharing.work_alone()


def share(piece: Any, work: Any, pieces: int, light: bool) -> None:
    """See `sharing.share`."""
    sharing.share(piece, work, pieces, light)


def convolution(minor: int) -> Any:
    """See `convolving.handler`."""
    return convolving.handler(minor)


def convolve(x: Any, y: Any, out: Any, how: Any) -> bool:
    """See `convolving.convolve`."""
    return convolving.convolve(x, y, out, how)


def pooler(minor: int) -> Any:
    """See `pooling.handler`."""
    return pooling.handler(minor)


def pool(given: Any, made: Any, how: Any) -> bool:
    """See `pooling.pool`."""
    return pooling.pool(given, made, how)


def sampler(minor: int) -> Any:
    """See `sampling.handler`."""
    return sampling.handler(minor)


def sample(image: Any, grid: Any, grad: Any, out: Any, how: Any) -> bool:
    """See `sampling.sample`."""
    return sampling.sample(image, grid, grad, out, how)


def resampler(minor: int) -> Any:
    """See `resampling.handler`."""
    return resampling.handler(minor)


def resample(x: Any, out: Any, how: Any) -> bool:
    """See `resampling.resample`."""
    return resampling.resample(x, out, how)


def row_handler(minor: int) -> Any:
    """See `rowwise.handler`."""
    return rowwise.handler(minor)


def by_rows(given: Any, made: Any, how: Any) -> bool:
    """See `rowwise.by_rows`."""
    return rowwise.by_rows(given, made, how)


def looper(minor: int) -> Any:
    """See `looping.handler`."""
    return looping.handler(minor)


def loop(given: Any, made: Any, how: Any) -> bool:
    """See `looping.loop`."""
    return looping.loop(given, made, how)


def recurrer(minor: int) -> Any:
    """See `recurring.handler`."""
    return recurring.handler(minor)


def recur(given: Any, made: Any, how: Any) -> bool:
    """See `recurring.recur`."""
    return recurring.recur(given, made, how)


def attender(minor: int) -> Any:
    """See `attending.handler`."""
    return attending.handler(minor)


def attend(given: list[Any], made: list[Any], weights: Any, how: Any, mask: Any = None, drop: Any = None) -> bool:
    """See `attending.attend`."""
    return attending.attend(given, made, weights, how, mask, drop)


def reducer(minor: int) -> Any:
    """See `reducing.handler`."""
    return reducing.handler(minor)


def reduced(x: Any, which: int, first: int, after: int) -> Any:
    """What `reducing.reduce` writes into a new array, None where it cannot."""
    shape = x.shape
    out = arrays.empty(shape[:first] + shape[after:], x.dtype)
    return out if reducing.reduce(x, out, which, first, after) else None


def losses_of_classes(x: Any, classes: Any, ignored: int) -> tuple[Any, int]:
    """What `rowwise.of_classes` writes into a new array, and returns."""
    losses = arrays.empty(classes.shape, x.dtype)
    return losses, rowwise.of_classes(x, classes, losses, ignored)


def ordered(x: Any, k: int, largest: bool, read: bool) -> Any:
    """What `ordering.order` writes into new arrays: the elements, None unless `read`, and their places. None where it cannot."""
    shape = (*x.shape[:-1], k)
    places = arrays.empty(shape, _PLACES)
    values = arrays.empty(shape, x.dtype) if read else None
    return (values, places) if ordering.order(x, places, values, largest) else None


def are_within(index: Any, low: int, size: int) -> bool:
    """See `ordering.are_within`."""
    return ordering.are_within(index, low, size)


def taken(x: Any, index: Any, dim: int) -> Any:
    """See `arrays.taken`."""
    return arrays.taken(x, index, dim)


def searched(x: Any, sought: Any, right: bool) -> Any:
    """What `ordering.search` writes into a new array, None where it cannot."""
    places = arrays.empty(sought.shape, _PLACES)
    return places if ordering.search(x, sought, places, right) else None


def special_function(x: Any, which: int, y: Any = None, z: Any = None) -> Any:
    """What `special.compute` writes into a new array, None where it cannot. x, y, z: contiguous."""
    like = x if y is None or x.ndim else y if z is None or y.ndim else z
    out = arrays.empty(like.shape, x.dtype)
    return out if special.compute(x, y, z, out, which) else None


sharing.heed_forks()
