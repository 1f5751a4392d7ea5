"""`torch.nn.utils.rnn`: batches of sequences of unequal lengths, padded, packed, and apart.

Packed, the steps of all sequences at one time stand one after another, the longest sequence first, so that no step of a recurrent network is padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

from torchgrad_jax.calling.expecting import expect_tensor
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import NUMBERS
from torchgrad_jax.functions.arrays import as_tensor
from torchgrad_jax.functions.creation import arange, tensor, zeros_like
from torchgrad_jax.functions.gathering import RunTime, call, index_select
from torchgrad_jax.nn.packing import pack_padded, pad_packed

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpack_sequence",
    "unpad_sequence",
]  # fmt: skip

_NOT_ON_CPU = (
    "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. They should be instantiated by functions "
    "like pack_sequence and pack_padded_sequences in nn.utils.rnn. https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
)


class PackedSequence_(NamedTuple):
    """The fields of a PackedSequence."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """Packed sequences, as the functions of this module make them and recurrent networks take them.

    data: (total, ...), the steps. batch_sizes: how many sequences there are at each time; on the CPU. sorted_indices: which sequence of the batch
    each is, None where they were sorted; unsorted_indices: the inverse.
    """

    __slots__ = ()

    def __new__(cls, data: Any, batch_sizes: Any = None, sorted_indices: Tensor | None = None, unsorted_indices: Tensor | None = None) -> Self:
        if batch_sizes is None:
            assert isinstance(data, (list, tuple)) and len(data) == 2, "Expected data to be a list or tuple of length 2"
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(_NOT_ON_CPU)
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """With the data converted or moved as by `Tensor.to`, and the indices moved; itself where that changes nothing."""
        if "copy" in kwargs:
            raise RuntimeError(".to() does not accept copy argument")
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        indices = [None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *indices)

    def cuda(self, *args: Any, **kwargs: Any) -> Self:
        """Moved to a GPU."""
        data = self.data.cuda(*args, **kwargs)
        return self if data is self.data else self.to(data.device)

    def cpu(self, *args: Any, **kwargs: Any) -> Self:
        """Moved to the host."""
        return self.to(*args, device="cpu", **kwargs)

    def pin_memory(self) -> Self:
        """With the data in pinned memory."""
        data: Any = self.data
        indices: list[Any] = [self.sorted_indices, self.unsorted_indices]
        return type(self)(data.pin_memory(), self.batch_sizes, *[None if i is None else i.pin_memory() for i in indices])

    def double(self) -> Self:
        """As float64."""
        return self.to(dtype=dtypes.float64)

    def float(self) -> Self:
        """As float32."""
        return self.to(dtype=dtypes.float32)

    def half(self) -> Self:
        """As float16."""
        return self.to(dtype=dtypes.float16)

    def long(self) -> Self:
        """As int64."""
        return self.to(dtype=dtypes.int64)

    def int(self) -> Self:
        """As int32."""
        return self.to(dtype=dtypes.int32)

    def short(self) -> Self:
        """As int16."""
        return self.to(dtype=dtypes.int16)

    def char(self) -> Self:
        """As int8."""
        return self.to(dtype=dtypes.int8)

    def byte(self) -> Self:
        """As uint8."""
        return self.to(dtype=dtypes.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the data is in pinned memory."""
        return self.data.is_pinned()


def _expect(name: str, value: Any, argument: str, position: int, kind: Any, word: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name}(): argument '{argument}' (position {position}) must be {word}, not {type(value).__name__}")


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that takes another one back; None of None."""
    if permutation is None:
        return None
    expect_tensor("empty_like", permutation)
    return zeros_like(permutation).scatter_(0, permutation, arange(0, permutation.numel(), device=permutation.device))


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Padded sequences, (time, batch, ...) or (with `batch_first`) (batch, time, ...), packed.

    lengths: of each sequence, a list or a tensor on the CPU, whose content is looked at. Unless `enforce_sorted` the sequences may be in any order.
    RuntimeError where there are not as many lengths as sequences, or one is 0, or they increase and `enforce_sorted` does not allow it.
    """
    lengths = as_tensor(lengths, dtype=dtypes.int64, device=None if isinstance(lengths, Tensor) else "cpu")
    if lengths.dim() != 1 or lengths.device.type != "cpu":
        raise RuntimeError(f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {lengths.device.type} Long tensor")
    counts, indices = lengths.tolist(), None
    if not enforce_sorted:
        order = sorted(range(len(counts)), key=lambda i: -counts[i])
        counts, indices = [counts[i] for i in order], tensor(order, dtype=dtypes.int64, device=input.device)
        input = index_select(input, 0 if batch_first else 1, indices)
    expect_tensor("_pack_padded_sequence", input)
    data, batch_sizes = pack_padded(input, counts, batch_first)
    return PackedSequence(data, batch_sizes, indices, None)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: Any = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Packed sequences padded with `padding_value` to the length of the longest, or to `total_length`; and their lengths. Both in the order in which
    the sequences came. ValueError where one is longer than `total_length`."""
    longest = sequence.batch_sizes.size(0)
    if total_length is not None and total_length < longest:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {longest}"
        )
    wanted = longest if total_length is None else total_length
    _expect("_pad_packed_sequence", padding_value, "padding_value", 4, NUMBERS, "Number")
    _expect("_pad_packed_sequence", wanted, "total_length", 5, int, "int")
    padded, lengths = pad_packed(sequence.data, sequence.batch_sizes, batch_first, padding_value, wanted)
    order = sequence.unsorted_indices
    if order is None:
        return padded, lengths
    return index_select(padded, 0 if batch_first else 1, order), lengths[order.cpu()]


def pad_sequence(sequences: Tensor | Iterable[Tensor], batch_first: bool = False, padding_value: Any = 0.0, padding_side: str = "right") -> Tensor:
    """Sequences, (length, ...) each, side by side as (time, batch, ...) or (batch, time, ...), with `padding_value` after the shorter ones or (on the
    side "left") before them. The result has the dtype of the first. RuntimeError where other dimensions differ."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    given: Sequence[Any] = sequences.unbind(0) if isinstance(sequences, Tensor) else tuple(sequences)
    for i, sequence in enumerate(given):
        if not isinstance(sequence, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(sequence).__name__}")
    _expect("pad_sequence", batch_first, "batch_first", 2, bool, "bool")
    _expect("pad_sequence", padding_value, "padding_value", 3, (float, int, Tensor), "float")
    _expect("pad_sequence", padding_side, "padding_side", 4, str, "str")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    if not given:
        raise RuntimeError("received an empty list of sequences")
    return call("_pad_sequence", list(given), RunTime(float(padding_value)), batch_first, padding_side == "left")


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences, without padding, of a padded batch. As PyTorch's, it transposes `padded_sequences` itself unless that is `batch_first`.
    ValueError where there are not as many lengths."""
    batch: Any = padded_sequences if batch_first else padded_sequences.transpose_(0, 1)
    steps = arange(batch.shape[1], device=lengths.device)
    return [sequence[steps < length] for sequence, length in zip(batch, lengths, strict=True)]


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Sequences, (length, ...) each, packed. Unless `enforce_sorted` they may be in any order. RuntimeError where they may not."""
    lengths = [sequence.size(0) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed batch, in the order in which they came."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
