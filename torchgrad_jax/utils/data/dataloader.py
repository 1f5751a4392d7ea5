"""`DataLoader`: batches of a dataset, made in this process or by workers."""

from __future__ import annotations

import itertools
import multiprocessing
import multiprocessing.context
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

from torchgrad_jax.functions.random import Generator
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.utils.data._utils.collate import default_collate, default_convert
from torchgrad_jax.utils.data._utils.iterating import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter
from torchgrad_jax.utils.data._utils.worker import get_worker_info
from torchgrad_jax.utils.data.datapipes.datapipe import IterDataPipe
from torchgrad_jax.utils.data.dataset import Dataset, IterableDataset
from torchgrad_jax.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T_co = TypeVar("_T_co", covariant=True)
_collate_fn_t = Callable[[list[Any]], Any]
_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _DatasetKind:
    """Which of the two kinds of datasets one is."""

    Map = 0
    Iterable = 1


class _InfiniteConstantSampler(Sampler[None]):
    """The keys of an iterable dataset, which has none."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class DataLoader(Generic[_T_co]):
    """Batches of a dataset: `for x, y in DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2)`.

    batch_size, drop_last: how many samples are put together by `collate_fn`, and whether a shorter last batch is left out; with None samples come
    as they are. shuffle, sampler, batch_sampler: in which order. generator: what shuffles are drawn from, and the seed of the workers.
    num_workers: how many processes make batches while the training loop does something else, prefetch_factor each in advance (2). They compute by
    NumPy and never start XLA. worker_init_fn is called in each with its number. They are forked where that is the platform's way, so that whatever
    the dataset holds is simply there; multiprocessing_context chooses another. timeout: how many seconds a batch may take. persistent_workers:
    whether they live on from one pass to the next. in_order: whether batches come in the order in which they were asked for.
    pin_memory: accepted; JAX copies from ordinary memory to a device without waiting. pin_memory_device likewise.
    ValueError for arguments that contradict each other, TypeError for a context that is none.
    """

    dataset: Dataset[_T_co]
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Any
    pin_memory_device: str
    prefetch_factor: int | None
    _iterator: Any
    __initialized = False

    def __init__(
        self,
        dataset: Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        if isinstance(dataset, IterableDataset):
            self._dataset_kind = _DatasetKind.Iterable
            if shuffle and isinstance(dataset, IterDataPipe):
                raise NotImplementedError("shuffle=True of an IterDataPipe means PyTorch's Shuffler, which is not here: shuffle in your own pipe")
            _check_iterable(shuffle, sampler, batch_sampler)
        else:
            self._dataset_kind = _DatasetKind.Map
            shuffle = bool(shuffle)
        _check_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            sampler = self.__usual_sampler(shuffle, generator)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        self.collate_fn = collate_fn or (default_collate if self._auto_collation else default_convert)
        self.persistent_workers = persistent_workers
        self.__initialized = True
        self._IterableDataset_len_called: int | None = None
        self._iterator = None
        self.check_worker_number_rationality()

    def __usual_sampler(self, shuffle: bool | None, generator: Generator | None) -> Sampler[Any]:
        if self._dataset_kind == _DatasetKind.Iterable:
            return _InfiniteConstantSampler()
        source = cast(Any, self.dataset)
        return RandomSampler(source, generator=generator) if shuffle else SequentialSampler(source)

    @property
    def multiprocessing_context(self) -> Any:
        """The context that workers are started by; None for the platform's."""
        return self.__multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, multiprocessing_context: Any) -> None:
        self.__multiprocessing_context = _context(multiprocessing_context, self.num_workers)

    def __setattr__(self, attr: str, val: Any) -> None:
        if self.__initialized and attr in _FIXED:
            raise ValueError(f"{attr} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(attr, val)

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    def __iter__(self) -> Any:
        if not (self.persistent_workers and self.num_workers > 0):
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def __len__(self) -> int:
        """The number of batches; of an iterable dataset what follows from its own length, which is warned of where it was wrong."""
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(cast(Any, self.dataset))
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def check_worker_number_rationality(self) -> None:
        """UserWarning for more workers than the process may use processors."""
        most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        if not self.num_workers or (most is not None and self.num_workers <= most):
            return
        here = f"Our suggested max number of worker in current system is {most}, which is smaller than what this DataLoader is going to create."
        warn_user(
            f"This DataLoader will create {self.num_workers} worker processes in total. "
            f"{here if most is not None else 'DataLoader is not able to compute a suggested max number of worker in current system.'} "
            "Please be aware that excessive worker creation might get DataLoader running slow or even freeze, lower the worker number to avoid "
            "potential slowness/freeze if necessary."
        )


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable multiprocessing, otherwise set "
            "prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_iterable(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    for name, given, forbidden in (("shuffle", shuffle, shuffle not in (False, None)), ("sampler", sampler, sampler is not None), (
        "batch_sampler", batch_sampler, batch_sampler is not None)):  # fmt: skip
        if forbidden:
            raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={given}")


def _check_order(batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool) -> None:
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
    if batch_sampler is None and batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")


def _context(given: Any, num_workers: int) -> Any:
    """The context that `multiprocessing_context` names, or is."""
    if given is None:
        return None
    if num_workers == 0:
        raise ValueError(f"multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got num_workers={num_workers}")
    if isinstance(given, str):
        methods = multiprocessing.get_all_start_methods()
        if given not in methods:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {methods!r}, but got multiprocessing_context={given!r}"
            )
        return multiprocessing.get_context(given)
    if not isinstance(given, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, but got "
            f"multiprocessing_context={given}"
        )
    return given
