"""From keys to a batch: the dataset is asked, what it computes is computed, and the samples are put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.utils.data._utils.collate import as_constant, default_collate
from torchgrad_jax.utils.data.dataset import Subset, TensorDataset


class Computing:
    """Runs what making a sample has recorded, sample by sample.

    A program of a whole batch would be another one for each combination of random decisions (flip this image, not that one), and as a part of the
    training step would make that another one, too. When a dataset is found to record, what the training loop has pending is cut off first.
    """

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records = False

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What `function` returns, computed."""
        rec = per_thread.recorder
        if type(rec) is not Recorder or rec.level is not None:
            return function(*arguments)
        if self._records:
            rec.flush("data")
        before = rec.epoch, rec.epoch.step
        found = function(*arguments)
        if self._records or (rec.epoch, rec.epoch.step) != before:
            self._records = True
            rec.flush("data")
        return found


class MapFetcher:
    """Samples of a map-style dataset."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self._dataset, self._collate = dataset, collate_fn
        self._batched = auto_collation
        self._computing = Computing()

    def fetch(self, keys: Any) -> Any:
        """The batch of these keys; of one key the sample."""
        return self._collate(self._computing.run(self._sample, keys)) if not self._batched else self._batch(keys)

    def _sample(self, key: Any) -> Any:
        return self._dataset[key]

    def _batch(self, keys: list[Any]) -> Any:
        dataset = self._dataset
        if self._collate is default_collate:
            rows = _rows(dataset, keys)
            if rows is not None:
                return rows
        if callable(getattr(dataset, "__getitems__", None)):
            samples = self._computing.run(dataset.__getitems__, keys)
        else:
            samples = [self._computing.run(self._sample, key) for key in keys]
        return self._collate(samples)


def _rows(dataset: Any, keys: list[Any]) -> list[Tensor] | None:
    """The batch of a dataset of whole tensors, each indexed once: what collating their rows gives, without a tensor for each of these. None for
    others, and where a graph or something else would see a difference."""
    while type(dataset) is Subset and type(dataset.indices) is list and all([type(k) is int for k in keys]):
        dataset, keys = dataset.dataset, [dataset.indices[k] for k in keys]
    if type(dataset) is not TensorDataset or not keys or not all([type(k) is int for k in keys]) or per_thread.recorder.rare:
        return None
    arrays = []
    for t in dataset.tensors:
        array = None if type(t) is not Tensor or t.requires_grad or not t.dim() else t._content().at_hand()
        if array is None:
            return None
        arrays.append(array)
    length = min([len(a) for a in arrays], default=0)
    if not -length <= min(keys) <= max(keys) < length:
        return None  # the first key that is out of range says so
    return [as_constant(np.take(a, keys, 0)) for a in arrays]


class IterableFetcher:
    """Samples of an iterable dataset, as many as keys are asked for."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self._samples: Iterator[Any] = iter(dataset)
        self._batched, self._collate, self._drop_last = auto_collation, collate_fn, drop_last
        self._ended = False
        self._computing = Computing()

    def fetch(self, keys: Any) -> Any:
        """The next batch. StopIteration when there is none."""
        if self._ended:
            raise StopIteration
        if not self._batched:
            return self._collate(self._computing.run(next, self._samples))
        samples = []
        for _ in keys:
            try:
                samples.append(self._computing.run(next, self._samples))
            except StopIteration:
                self._ended = True
                break
        if not samples or (self._drop_last and len(samples) < len(keys)):
            raise StopIteration
        return self._collate(samples)
