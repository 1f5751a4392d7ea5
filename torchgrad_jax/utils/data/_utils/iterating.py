"""One pass through a `DataLoader`, in this process or by workers."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from typing import Any

from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.utils.data._utils.errors import ExceptionWrapper
from torchgrad_jax.utils.data._utils.pin_memory import pinned, warn_without_accelerator
from torchgrad_jax.utils.data._utils.processes import Worker, end, received
from torchgrad_jax.utils.data._utils.worker import RESUME, Ended, Job
from torchgrad_jax.utils.data.datapipes.datapipe import IterDataPipe
from torchgrad_jax.utils.data.sampler import drawn_seed

_LENGTH = "Length of IterableDataset {} was reported to be {}(when accessing len(dataloader)), but {} samples have been fetched. "
_LENGTH_OF_WORKERS = (
    "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica at each worker. Please see "
    "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
)


class _BaseDataLoaderIter:
    """An iterator over a loader's batches. Drawing the seed of the workers is the first that it does, whether there are any or not."""

    # It does not refer to its loader: persistent workers end when that is dropped.

    def __init__(self, loader: Any) -> None:
        self._dataset, self._dataset_kind = loader.dataset, loader._dataset_kind
        self._auto_collation, self._collate_fn, self._drop_last = loader._auto_collation, loader.collate_fn, loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers, self._prefetch_factor, self._in_order = loader.num_workers, loader.prefetch_factor, loader.in_order
        self._worker_init_fn, self._persistent_workers, self._timeout = loader.worker_init_fn, loader.persistent_workers, loader.timeout
        self._pin_memory = loader.pin_memory and warn_without_accelerator()
        self._shared_seed = self._shared(loader)
        self._base_seed = drawn_seed(loader.generator)
        self._begin(loader)

    def _shared(self, loader: Any) -> int | None:
        """What PyTorch draws for the shuffling pipes of its own."""
        return drawn_seed(loader.generator) if isinstance(self._dataset, IterDataPipe) else None

    def _begin(self, loader: Any) -> None:
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _job(self) -> Job:
        return Job(
            bool(self._dataset_kind), self._dataset, self._auto_collation, self._collate_fn, self._drop_last, self._base_seed, self._worker_init_fn,
            self._num_workers,
        )  # fmt: skip

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        data = self._next_data()
        if self._pin_memory:
            data = pinned(data)
        self._num_yielded += 1
        told = self._IterableDataset_len_called
        if told is not None and self._dataset_kind and self._num_yielded > told:
            warn_user(_LENGTH.format(self._dataset, told, self._num_yielded) + (_LENGTH_OF_WORKERS if self._num_workers else ""))
        return data

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Batches made in this process, each when it is asked for."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        assert self._timeout == 0, "_SingleProcessDataLoaderIter requires timeout == 0"
        self._dataset_fetcher = self._job().fetcher()

    def _next_data(self) -> Any:
        return self._dataset_fetcher.fetch(next(self._sampler_iter))


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Batches made by workers: `prefetch_factor` for each of them are asked for ahead, in turn."""

    def __init__(self, loader: Any) -> None:
        self._workers: list[Worker] = []
        self._owner = os.getpid()
        super().__init__(loader)
        context = loader.multiprocessing_context or multiprocessing.get_context()
        job = self._job()
        try:
            for number in range(self._num_workers):
                self._workers.append(Worker(context, job, number))
        except BaseException:
            self._shutdown_workers()
            raise
        self._shared_seed = self._shared(loader)  # again, as in PyTorch
        self._ask_ahead()

    def _begin(self, loader: Any) -> None:
        super()._begin(loader)
        self._send_idx = self._rcvd_idx = self._turn = 0
        self._asked: dict[int, Worker] = {}  # whose is a task that is not answered
        self._arrived: dict[int, Any] = {}

    def _reset(self, loader: Any) -> None:
        """Begin another pass of the loader with the same workers."""
        while self._asked:  # of a pass that was left early
            self._receive(keep=False)
        self._shared_seed = self._shared(loader)
        self._begin(loader)
        for w in self._workers:
            w.active = True
            w.ask(RESUME)
        self._ask_ahead()

    # ------------------------------------------------------------------ asking

    def _ask_ahead(self) -> None:
        for _ in range(self._prefetch_factor * self._num_workers):
            self._ask()

    def _ask(self) -> None:
        """Let the next worker in turn make a batch; out of order one that has not enough to do."""
        if len(self._asked) + len(self._arrived) >= self._prefetch_factor * self._num_workers:
            return
        chosen = None
        for i in range(self._num_workers):
            w = self._workers[(self._turn + i) % self._num_workers]
            if w.active and (self._in_order or w.tasks < self._prefetch_factor):
                chosen = w
                break
        if chosen is None:
            return
        try:
            keys = next(self._sampler_iter)
        except StopIteration:
            return
        self._turn = chosen.number + 1
        chosen.tasks += 1
        self._asked[self._send_idx] = chosen
        chosen.ask((self._send_idx, keys))
        self._send_idx += 1

    # ------------------------------------------------------------------ answers

    def _receive(self, keep: bool = True) -> None:
        for w, (task, data) in received(self._workers, self._timeout if self._timeout > 0 else None):
            del self._asked[task]
            if not isinstance(data, Ended):
                if keep:
                    self._arrived[task] = data
            else:
                w.active = False
                self._ask()

    def _next_task(self) -> int | None:
        """Which batch is the next, or, where any will do and none is there, one that is not; None if there is none any more."""
        if not self._in_order:
            return next(iter(self._arrived or self._asked), None)
        while self._rcvd_idx < self._send_idx and self._rcvd_idx not in self._arrived and self._rcvd_idx not in self._asked:
            self._rcvd_idx += 1  # the dataset had ended there
        return self._rcvd_idx if self._rcvd_idx < self._send_idx else None

    def _next_data(self) -> Any:
        while True:
            task = self._next_task()
            if task is None:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            if task in self._arrived:
                break
            if not self._workers:
                raise StopIteration
            self._receive()
        data = self._arrived.pop(task)
        if self._in_order:
            self._rcvd_idx += 1
        self._ask()
        if isinstance(data, ExceptionWrapper):
            data.reraise()
        return data

    # ------------------------------------------------------------------ the end

    def _shutdown_workers(self) -> None:
        workers, self._workers = self._workers, []
        if self._owner == os.getpid():
            end(workers)

    def __del__(self) -> None:
        # At the end of the interpreter multiprocessing has ended them already.
        with contextlib.suppress(Exception):
            self._shutdown_workers()
