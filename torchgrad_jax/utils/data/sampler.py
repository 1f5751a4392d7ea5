"""Samplers: in which order a `DataLoader` asks for samples. The same seed gives PyTorch's order."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar, cast

import numpy as np

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.arrays import as_tensor
from torchgrad_jax.functions.random import Generator, default_generator
from torchgrad_jax.functions.random_factories import multinomial

__all__ = ["BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler"]

_T_co = TypeVar("_T_co", covariant=True)


class Sampler(Generic[_T_co]):
    """An order of keys, or of lists of keys. Subclasses have `__iter__`, and most have `__len__`."""

    def __iter__(self) -> Iterator[_T_co]:
        raise NotImplementedError


def drawn_seed(generator: Generator | None) -> int:
    """What `torch.empty((), dtype=torch.int64).random_()` draws."""
    return int((default_generator if generator is None else generator).random((), np.int64))


def _positive(name: str, count: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={count}")


class SequentialSampler(Sampler[int]):
    """0, 1, 2 ..."""

    data_source: Sized

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """`num_samples` keys (default: all) in random order, each at most once in as many as there are unless `replacement`.

    Without a `generator` each iteration draws the seed of one from the default generator. TypeError, ValueError for bad arguments.
    """

    data_source: Sized
    replacement: bool

    def __init__(self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Generator | None = None) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        _positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many keys one iteration gives; the dataset's length, which may change, where that was not said."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, generator = len(self.data_source), self.generator
        if generator is None:
            generator = Generator().manual_seed(drawn_seed(None))
        if self.replacement:
            for begin in range(0, self.num_samples, 32):
                yield from generator.randint(0, n, (min(32, self.num_samples - begin),)).tolist()
        else:
            for _ in range(self.num_samples // n):
                yield from generator.randperm(n).tolist()
            yield from generator.randperm(n).tolist()[: self.num_samples % n]  # drawn by PyTorch even where none of it is wanted

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The keys `indices` in random order."""

    indices: Sequence[int]

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in (self.generator or default_generator).randperm(len(self.indices)).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` keys drawn with these probabilities, which need not sum up to 1. ValueError for bad arguments."""

    weights: Tensor
    num_samples: int
    replacement: bool

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None) -> None:
        _positive("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        as_weights = as_tensor(weights).double()
        if as_weights.dim() != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(as_weights.shape)}")
        self.weights = as_weights
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        yield from multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """The keys of another sampler in lists of `batch_size`. The last may be shorter, or is left out. ValueError for bad arguments."""

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool) -> None:
        _positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        keys = iter(self.sampler)
        while batch := list(itertools.islice(keys, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        count = len(cast(Any, self.sampler))
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
