"""Sequences of unequal lengths: padded side by side, and packed, that is with the steps of all of them that are at one time one after another.

Where sequences are packed the longest come first; `batch_sizes` says how many there are at each time.
"""

from __future__ import annotations

from typing import Any

from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import numpy_packing as forms
from torchgrad_jax.declaration.converting import broadcast_shapes, broadcast_to, convert, where
from torchgrad_jax.declaration.operator import op


def _packed(x: Any, batch_sizes: Any, total: int) -> Any:
    ends = jnp.cumsum(batch_sizes)
    row = jnp.arange(total)
    time = jnp.sum(row[:, None] >= ends, 1)
    first = (ends - batch_sizes).at[time].get(mode="promise_in_bounds")
    return x.at[time, row - first].get(mode="promise_in_bounds")


def _padded(data: Any, batch_sizes: Any, batch: int, value: Any) -> Any:
    column = jnp.arange(batch)
    there = column < batch_sizes[:, None]
    first = jnp.cumsum(batch_sizes) - batch_sizes
    rows = data.at[where(there, first[:, None] + column, 0)].get(mode="promise_in_bounds")
    return where(lax.reshape(there, (*there.shape, *(1,) * (data.ndim - 1))), rows, convert(value, data.dtype))


def _by_time(x: Any, batch_first: bool) -> Any:
    return jnp.swapaxes(x, 0, 1) if batch_first else x


def _of_padded(grad: Any, batch_sizes: Any, batch_first: bool, input_sym_sizes: tuple[int, ...]) -> Any:
    batch, time = input_sym_sizes[:2] if batch_first else input_sym_sizes[1::-1]
    found = _padded(grad, batch_sizes, batch, jnp.zeros((), grad.dtype))
    missing = time - found.shape[0]
    return _by_time(jnp.pad(found, [(0, missing), *[(0, 0)] * (found.ndim - 1)]) if missing else found, batch_first)


@op("_pack_padded_sequence(Tensor input, Tensor batch_sizes, int total, bool batch_first)", method=False, toplevel=False, multilinear=True,
    node="PackPaddedSequenceBackward0", grads={"input": _of_padded}, numpy=forms.packed, numpy_vjp=forms.packed_vjp)  # fmt: skip
def pack(x: Any, batch_sizes: Any, total: int, batch_first: bool) -> Any:
    """(time, batch, ...), or (batch, time, ...), as (total, ...): of each time the first `batch_sizes` rows."""
    return _packed(_by_time(x, batch_first), batch_sizes, total)


@op("_pad_packed_sequence(Tensor data, Tensor batch_sizes, int batch, Scalar padding_value)", method=False, toplevel=False, multilinear=True,
    grads={"data": lambda grad, batch_sizes, data_sym_sizes: _packed(grad, batch_sizes, data_sym_sizes[0])}, numpy=forms.padded,
    numpy_vjp=forms.padded_vjp)  # fmt: skip
def pad(data: Any, batch_sizes: Any, padding_value: Any, batch: int) -> Any:
    """(total, ...) as (time, batch, ...), with `padding_value` where sequences have ended."""
    return _padded(data, batch_sizes, batch, padding_value)


def _check_sequences(sequences: list[Any], *_: Any, **statics: Any) -> None:
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if any(s.ndim == 0 for s in sequences):
        raise RuntimeError("ArrayRef: invalid slice, N = 1; size = 0")
    for s in sequences:
        row = (s.shape[0], *sequences[0].shape[1:])
        if (whole := broadcast_shapes(row, s.shape)) != row:
            raise RuntimeError(f"output with shape {list(row)} doesn't match the broadcast shape {list(whole)}")


@op("_pad_sequence(Tensor[] sequences, Scalar padding_value, bool batch_first, bool left)", method=False, toplevel=False, linear=True,
    validate=_check_sequences, numpy=forms.padded_together, numpy_vjp=forms.padded_together_vjp)  # fmt: skip
def pad_sequence(sequences: list[Any], padding_value: Any, batch_first: bool, left: bool) -> Any:
    """Sequences side by side, each as long as the longest; they get the first one's dtype."""
    longest, features, dtype = max([s.shape[0] for s in sequences]), sequences[0].shape[1:], sequences[0].dtype
    value, rows = convert(padding_value, dtype), []
    for s in sequences:
        missing = longest - s.shape[0]
        whole = broadcast_to(convert(s, dtype), (s.shape[0], *features))
        rows.append(lax.pad(whole, value, [(missing, 0, 0) if left else (0, missing, 0), *[(0, 0, 0)] * len(features)]))
    return jnp.stack(rows, 0 if batch_first else 1)
