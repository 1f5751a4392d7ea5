"""Parts of NumPy arrays, as views: see `numpy_forms.py`.

`by_index` of those that begin at a number makes the function for one kind of part, which is what a program is run by that is run often: of an array
and Python's int it takes a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.carrying import Part, put
from torchgrad_jax.runtime.baseline.form import Forms

Array = np.ndarray
_ALL = slice(None)


def start(index: Any, size: int, length: int) -> int:
    """Where a part of `length` begins: JAX counts a negative index from the end, and moves what is out of range inside."""
    if length > size:
        raise ValueError("a part larger than the whole")
    i, last = int(index), size - length
    i = i if i >= 0 else max(i + size, 0)
    return last if i > last else i


def select(x: Array, index: Any, dim: int) -> Array:
    """The slice at `index` of `dim`, a view."""
    return x[start(index, x.shape[0], 1), ...] if not dim else x[(*(_ALL,) * dim, start(index, x.shape[dim], 1), ...)]


def _selecting(dim: int) -> Callable[[Array, int], Array]:
    return Part(dim, -1, 1, lambda x, index: select(x, index, dim))


def slice_(x: Array, begin: Any, dim: int, length: int, step: int) -> Array:
    """`length` slices along `dim`, every `step`-th, a view."""
    span = (length - 1) * step + 1 if length else 0
    first = start(begin, x.shape[dim], span)
    return x[(*(_ALL,) * dim, slice(first, first + span, step))]


def _slicing(dim: int, length: int, step: int) -> Callable[[Array, int], Array]:
    return Part(dim, length, step, lambda x, begin: slice_(x, begin, dim, length, step))


select.by_index, slice_.by_index = _selecting, _slicing  # type: ignore[attr-defined]


def flipped(x: Array, dims: Sequence[int]) -> Array:
    """The elements in the opposite order along `dims`, a view."""
    return x[_backwards(x.ndim, tuple(dims))]


@lru_cache(1024)
def _backwards(ndim: int, dims: tuple[int, ...]) -> tuple[slice, ...]:
    backwards = {d % ndim for d in dims}
    return tuple([slice(None, None, -1) if d in backwards else _ALL for d in range(ndim)])


def narrow(x: Array, dim: int, start: int, length: int) -> Array:
    """The part of `dim` from `start` on, a view."""
    if not 0 <= start <= start + length <= x.shape[dim]:
        raise ValueError("a part that is not inside")
    return x[(*(_ALL,) * dim, slice(start, start + length))]


def split(x: Array, dim: int, parts: Sequence[tuple[int, int]]) -> tuple[Array, ...]:
    """Pieces of `dim`, views."""
    return tuple([x[piece] for piece in _pieces(dim, tuple(parts), x.shape[dim])])


@lru_cache(4096)
def _pieces(dim: int, parts: tuple[tuple[int, int], ...], size: int) -> list[tuple[slice, ...]]:
    if not all([0 <= start <= start + length <= size for start, length in parts]):
        raise ValueError("a part that is not inside")
    return [(*(_ALL,) * dim, slice(start, start + length)) for start, length in parts]


def unbind(x: Array, dim: int, parts: Sequence[tuple[int, int]]) -> tuple[Array, ...]:
    """The slices along `dim`, views."""
    return tuple([x[key] for key in _slices(dim, tuple([begin for begin, _ in parts]), x.shape[dim])])


@lru_cache(4096)
def _slices(dim: int, begins: tuple[int, ...], size: int) -> list[tuple[Any, ...]]:
    if not all([0 <= begin < size for begin in begins]):
        raise ValueError("a part that is not inside")
    return [(*(_ALL,) * dim, begin, ...) for begin in begins]


PUT_KINDS = "fdbhilqB?"


def _put(x: Array, value: Array, *begins: Any, dims: tuple[int, ...], lengths: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    if put(x, value, begins, dims, lengths, steps):
        return x
    where: list[Any] = []
    for part in _spans(dims, lengths, steps):
        if part is None:
            where.append(_ALL)
        else:
            place, span, step = part
            begin = begins[place]
            where.append(begin if span < 0 else slice(begin, begin + span, step))
    x[tuple(where)] = value
    return x


@lru_cache(4096)
def _spans(dims: tuple[int, ...], lengths: tuple[int, ...], steps: tuple[int, ...]) -> list[tuple[int, int, int] | None]:
    """Of each dimension up to the last of `dims` which begin is its, how far the part reaches, -1 of an index, and its step; None where all of it is
    meant."""
    found: list[tuple[int, int, int] | None] = [None] * (dims[-1] + 1)
    for place, (dim, length, step) in enumerate(zip(dims, lengths, steps, strict=True)):
        found[dim] = place, -1 if length < 0 else (length - 1) * step + 1, step
    return found


def _put_result(x: Array, value: Array, *begins: Any, **statics: Any) -> Array | None:
    return x if value.dtype == x.dtype or (x.dtype.char in PUT_KINDS and not value.ndim) else None


# A value written to a part that begins at several numbers.
put_part = Forms(lambda x, value, *begins, **statics: _put(x.copy(), value, *begins, **statics), _put_result, True, _put)
