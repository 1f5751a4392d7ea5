"""Datasets: what a `DataLoader` takes samples from."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.random import Generator, default_generator
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset", "random_split"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_T_stack = TypeVar("_T_stack", tuple[Any, ...], dict[str, Any])


class Dataset(Generic[_T_co]):
    """A map from keys to samples. Subclasses have `__getitem__`, most have `__len__`, and some `__getitems__`, which gets a list of keys at once.

    NotImplementedError for a subclass without `__getitem__`.
    """

    def __getitem__(self, index: Any) -> _T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[_T_co]) -> ConcatDataset[_T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[_T_co], Iterable[_T_co]):
    """A stream of samples. Subclasses have `__iter__`. Each worker of a `DataLoader` has its own copy: `get_worker_info` says which part is its."""

    def __add__(self, other: Dataset[_T_co]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Samples are tuples of the tensors' slices along the first dimension. AssertionError where their lengths differ."""

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        assert all(tensors[0].size(0) == tensor.size(0) for tensor in tensors), "Size mismatch between tensors"
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([tensor[index] for tensor in self.tensors])

    def __len__(self) -> int:
        return self.tensors[0].size(0)


class StackDataset(Dataset[_T_stack]):
    """Samples are tuples (or dicts, by keyword) of the samples of several datasets of one length. ValueError for none, both, or other lengths."""

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Dataset[_T_co], **kwargs: Dataset[_T_co]) -> None:
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        if args and kwargs:
            raise ValueError("Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like input/output, but both types are given.")
        lengths = [len(cast(Any, dataset)) for dataset in args or kwargs.values()]
        self._length = lengths[0]
        if any(length != self._length for length in lengths):
            raise ValueError("Size mismatch between datasets")
        self.datasets = args or kwargs

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """The samples of several keys. ValueError where a dataset's own `__getitems__` gives another number."""
        if isinstance(self.datasets, dict):
            columns = [_samples(dataset, indices) for dataset in self.datasets.values()]
            return [dict(zip(self.datasets, row, strict=True)) for row in zip(*columns, strict=True)]
        return list(zip(*[_samples(dataset, indices) for dataset in self.datasets], strict=True))

    def __len__(self) -> int:
        return self._length


def _samples(dataset: Any, indices: list[Any]) -> Sequence[Any]:
    if not callable(getattr(dataset, "__getitems__", None)):
        return [dataset[index] for index in indices]
    found = dataset.__getitems__(indices)
    if len(found) != len(indices):
        raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(found)}")
    return found


class ConcatDataset(Dataset[_T_co]):
    """Several datasets as one, one after the other. AssertionError for none, and for iterable ones."""

    datasets: list[Dataset[_T_co]]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """The sums of the lengths up to each."""
        return list(itertools.accumulate([len(dataset) for dataset in sequence]))

    def __init__(self, datasets: Iterable[Dataset[_T_co]]) -> None:
        super().__init__()
        self.datasets = list(datasets)
        assert len(self.datasets) > 0, "datasets should not be an empty iterable"
        for dataset in self.datasets:
            assert not isinstance(dataset, IterableDataset), "ConcatDataset does not support IterableDataset"
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> _T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        return self.datasets[which][idx - (self.cumulative_sizes[which - 1] if which else 0)]

    @property
    def cummulative_sizes(self) -> list[int]:
        """The older name of `cumulative_sizes`. FutureWarning."""
        warn_user("`cummulative_sizes` attribute is renamed to `cumulative_sizes`", FutureWarning)
        return self.cumulative_sizes


class ChainDataset(IterableDataset[Any]):
    """Several iterable datasets as one, one after the other. AssertionError, when it comes to it, for one that is not."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        super().__init__()
        self.datasets = datasets

    def __checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            assert isinstance(dataset, IterableDataset), "ChainDataset only supports IterableDataset"
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        for dataset in self.__checked():
            yield from dataset

    def __len__(self) -> int:
        return sum([len(dataset) for dataset in self.__checked()])


_OVERRIDES = """{} overrides __getitem__ but not __getitems__. When subclassing Subset and overriding __getitem__, you must also override \
__getitems__ to ensure DataLoader works correctly with your custom logic. A simple implementation:

def __getitems__(self, indices):
    return [self.__getitem__(idx) for idx in indices]"""


class Subset(Dataset[_T_co]):
    """The samples of a dataset at `indices`. NotImplementedError for a subclass with a `__getitem__` of its own and no `__getitems__`."""

    dataset: Dataset[_T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[_T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices
        kind = type(self)
        if kind.__getitem__ is not Subset.__getitem__ and kind.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(_OVERRIDES.format(kind.__name__))

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[_T_co]:
        """The samples of several keys; by the dataset's own `__getitems__` if it has one."""
        chosen = [self.indices[i] for i in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__(chosen)  # type: ignore[attr-defined] - just asked for
        return [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Dataset[_T], lengths: Sequence[int | float], generator: Generator | None = default_generator) -> list[Subset[_T]]:
    """Subsets that have all samples between them, of these lengths, or these fractions, which sum up to 1; the same seed gives PyTorch's.

    Of fractions each length is rounded down, and what is left over goes to one after the other. ValueError where they do not sum up.
    """
    size = len(cast(Any, dataset))
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _whole(lengths, size)
        for i, length in enumerate(lengths):
            if length == 0:
                warn_user(f"Length of split at index {i} is 0. This might result in an empty dataset.")
    if sum(lengths) != size:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = (default_generator if generator is None else generator).randperm(size).tolist()
    ends = list(itertools.accumulate(cast("Sequence[int]", lengths)))
    return [Subset(dataset, order[end - int(length) : end]) for end, length in zip(ends, lengths, strict=True)]


def _whole(fractions: Sequence[float], size: int) -> list[int]:
    found = []
    for i, fraction in enumerate(fractions):
        if fraction < 0 or fraction > 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
        found.append(math.floor(size * fraction))
    for i in range(size - sum(found)):
        found[i % len(found)] += 1
    return found
