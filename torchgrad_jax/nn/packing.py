"""Batches of sequences of unequal lengths on their way between being padded and being packed: see `torch.nn.utils.rnn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.gathering import RunTime, call
from torchgrad_jax.functions.views import narrow, transpose


def _counts(sizes: Sequence[int], device: Any) -> Tensor:
    return created(from_data(np.array(sizes, np.int64), None, device))


def batch_of(batch_sizes: Tensor) -> int:
    """How many sequences are packed. RuntimeError, IndexError where `batch_sizes` do not tell."""
    if batch_sizes.dim() != 1:
        raise RuntimeError(f"batch_sizes of a packed sequence must have 1 dimension, got {batch_sizes.dim()}")
    if not batch_sizes.numel():
        raise IndexError("index 0 is out of bounds for dimension 0 with size 0")
    return int(batch_sizes.tolist()[0])


class Packing(NamedTuple):
    """How sequences are packed: at each time so many of them, of `batch` ones."""

    sizes: list[int]
    batch: int

    @classmethod
    def of(cls, batch_sizes: Tensor) -> Packing:
        """The Packing that `batch_sizes` tell, whose content is looked at. RuntimeError where they cannot be numbers of sequences at each time."""
        if batch_sizes.dtype is not dtypes.int64:
            raise RuntimeError(f"expected scalar type Long but found {batch_sizes.dtype.title}")
        batch, sizes = batch_of(batch_sizes), batch_sizes.tolist()
        if any(a < b for a, b in zip(sizes, sizes[1:], strict=False)) or sizes[-1] < 0:
            raise RuntimeError("batch_sizes of a packed sequence must not increase, and must not be negative")
        return cls(sizes, batch)

    @property
    def is_even(self) -> bool:
        """Whether all sequences are of one length."""
        return self.sizes[-1] == self.batch

    def pack(self, padded: Tensor, batch_first: bool = False) -> Tensor:
        """(time, batch, ...), or (batch, time, ...), as (total, ...)."""
        return call("_pack_padded_sequence", padded, self.on(padded), sum(self.sizes), batch_first)

    def pad(self, data: Tensor, value: Any = 0.0) -> Tensor:
        """(total, ...) as (time, batch, ...), filled up with `value`. RuntimeError where there are not as many rows."""
        total, rows = sum(self.sizes), data._aval.shape[0]
        if rows < total:
            last = next(n for n in reversed(self.sizes) if n)
            raise RuntimeError(f"start ({total - last}) + length ({last}) exceeds dimension size ({rows}).")
        return call("_pad_packed_sequence", narrow(data, 0, 0, total) if rows > total else data, self.on(data), self.batch, RunTime(value))

    def on(self, like: Tensor) -> Tensor:
        """The sizes as a tensor where `like` is."""
        return _counts(self.sizes, like.device)


def pack_padded(input: Tensor, lengths: list[int], batch_first: bool) -> tuple[Tensor, Tensor]:
    """Padded sequences, the longest first, packed; and the batch sizes. RuntimeError where the lengths are not those of as many sequences."""
    if not input._aval.size:
        raise RuntimeError("Cannot pack empty tensors.")
    batch, time = input.size(0 if batch_first else 1), input.size(1 if batch_first else 0)
    if len(lengths) != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={batch})")
    if min(lengths) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if any(a < b for a, b in zip(lengths, lengths[1:], strict=False)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False` to "
            "pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability."
        )
    sizes = [int(n) for n in (np.arange(lengths[0])[:, None] < np.array(lengths)).sum(1)]
    # PyTorch packs what is there of sequences that are longer than the padded ones.
    data = Packing(sizes[:time], batch).pack(input, batch_first)
    return data, _counts(sizes, "cpu")


def pad_packed(data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: Any, total_length: int) -> tuple[Tensor, Tensor]:
    """Packed sequences padded to `total_length` steps, and their lengths."""
    packing = Packing.of(batch_sizes)
    more = total_length - len(packing.sizes)
    padded = Packing(packing.sizes + [0] * more, packing.batch).pad(data, padding_value)
    lengths = (np.array(packing.sizes)[:, None] > np.arange(packing.batch)).sum(0)
    return transpose(padded, 0, 1) if batch_first else padded, _counts(lengths.tolist(), "cpu")
