"""Sequences of unequal lengths, padded side by side and packed: their forms on NumPy arrays. See `numpy_forms.py`.

Lengths are others in every batch, so that most calls are the first of their kind: traced, each takes 1 to 2 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array, Shape, converted, convertible
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval


def _padded_together(sequences: list[Array], value: Array, batch_first: bool, left: bool) -> Array:
    whole = np.empty(_together_shape(sequences, batch_first), sequences[0].dtype)
    whole[...] = converted(value, whole.dtype)
    rows = whole if batch_first else whole.swapaxes(0, 1)
    for row, sequence in zip(rows, sequences, strict=True):
        row[_part_of(len(sequence), len(row), left)] = converted(sequence, whole.dtype)
    return whole


def _part_of(length: int, longest: int, left: bool) -> slice:
    """Where a sequence lies among the steps of the longest one."""
    return slice(longest - length, None) if left else slice(None, length)


def _together_shape(sequences: Sequence[Array], batch_first: bool) -> Shape:
    longest = max([len(s) for s in sequences])
    return ((len(sequences), longest) if batch_first else (longest, len(sequences))) + sequences[0].shape[1:]


def _padded_together_result(sequences: list[Array], value: Array, batch_first: bool, left: bool) -> Array | None:
    first = sequences[0] if sequences else None
    if first is None or not first.ndim or not all([s.shape[1:] == first.shape[1:] and convertible(s.dtype, first.dtype) for s in sequences]):
        return None
    return stand_in(_together_shape(sequences, batch_first), first.dtype) if convertible(value.dtype, first.dtype) else None


def _padded_together_vjp(grad: Array, avals: Sequence[Aval], *_: Any, batch_first: bool, left: bool) -> list[Array]:
    rows = grad if batch_first else grad.swapaxes(0, 1)
    return [row[_part_of(aval.shape[0], len(row), left)] for row, aval in zip(rows, avals, strict=True)]


padded_together, padded_together_vjp = Forms(_padded_together, _padded_together_result), _padded_together_vjp


def _there(batch_sizes: Array, batch: int) -> Array:
    """At each time, which sequences have not ended."""
    return np.arange(batch) < batch_sizes[:, None]


def _packed(x: Array, batch_sizes: Array, total: int, batch_first: bool = False) -> Array:
    rows = x.swapaxes(0, 1) if batch_first else x
    return rows[: len(batch_sizes)][_there(batch_sizes, rows.shape[1])]


def _packed_result(x: Array, batch_sizes: Array, total: int, batch_first: bool = False) -> Array:
    return stand_in((total, *x.shape[2:]), x.dtype)


def _packed_vjp(grad: Array, aval: Aval, batch_sizes: Array, total: int, batch_first: bool) -> Array:
    found = np.zeros(aval.shape, grad.dtype)
    rows = found.swapaxes(0, 1) if batch_first else found
    rows[: len(batch_sizes)][_there(batch_sizes, rows.shape[1])] = grad
    return found


def _packed_vjp_result(grad: Array, aval: Aval, batch_sizes: Array, total: int, batch_first: bool) -> Array:
    return stand_in(aval.shape, grad.dtype)


def _padded(data: Array, batch_sizes: Array, padding_value: Array, batch: int) -> Array:
    there = _there(batch_sizes, batch)
    found = np.empty((*there.shape, *data.shape[1:]), data.dtype)
    found[...] = converted(padding_value, data.dtype)
    found[there] = data
    return found


def _padded_result(data: Array, batch_sizes: Array, padding_value: Array, batch: int) -> Array | None:
    fits = convertible(padding_value.dtype, data.dtype)
    return stand_in((*batch_sizes.shape, batch, *data.shape[1:]), data.dtype) if fits else None


def _padded_vjp(grad: Array, aval: Aval, batch_sizes: Array, batch: int) -> Array:
    return _packed(grad, batch_sizes, aval.shape[0])


def _padded_vjp_result(grad: Array, aval: Aval, batch_sizes: Array, batch: int) -> Array:
    return stand_in(aval.shape, grad.dtype)


packed, packed_vjp = Forms(_packed, _packed_result, True), Forms(_packed_vjp, _packed_vjp_result, True)
padded, padded_vjp = Forms(_padded, _padded_result, True), Forms(_padded_vjp, _padded_vjp_result, True)
