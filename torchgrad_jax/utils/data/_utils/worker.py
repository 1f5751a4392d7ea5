"""The side of a `DataLoader`'s worker: a process that makes batches and never starts XLA."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from torchgrad_jax.functions.random import default_generator
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.execution import execution_mode
from torchgrad_jax.utils.data._utils.errors import ExceptionWrapper
from torchgrad_jax.utils.data._utils.fetch import IterableFetcher, MapFetcher
from torchgrad_jax.utils.data._utils.transport import Channel

WITHOUT_XLA = "this is a worker of a DataLoader, which computes by NumPy and never starts XLA"
_INSTEAD = "Do it to the batch, in the loop over the DataLoader, or use num_workers=0"


@dataclass
class WorkerInfo:
    """What a worker is told: its number, how many there are, its seed, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str = "multiprocessing"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a `DataLoader` its `id`, `num_workers`, `seed` and `dataset`; None elsewhere."""
    return _worker_info


@dataclass
class Job:
    """What all workers of one loader have in common."""

    iterable: bool
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    worker_init_fn: Callable[[int], Any] | None
    num_workers: int

    def fetcher(self) -> MapFetcher | IterableFetcher:
        """What makes batches of the dataset."""
        kind = IterableFetcher if self.iterable else MapFetcher
        return kind(self.dataset, self.auto_collation, self.collate_fn, self.drop_last)


# What goes through the channel, beside batches and errors. To a worker: (number, keys), or RESUME for another epoch. From one: (number, batch).
RESUME = "resume"


class Ended:
    """In place of a batch: an iterable dataset has no more."""


def _seed(job: Job, number: int) -> None:
    """Seed as PyTorch does: each worker its own numbers, also of Python and of NumPy."""
    random.seed(job.base_seed + number)
    default_generator.manual_seed(job.base_seed + number)
    words = [number, job.base_seed & 0xFFFFFFFF, job.base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(words).generate_state(4))


def run(job: Job, number: int, connection: Connection) -> None:
    """Make the batches that are asked for until the other end is closed."""
    global _worker_info
    try:
        # What was there before the fork belongs to the parent: collecting it here would copy its pages, and finalize what is not ours.
        gc.freeze()
        modes.do_without_xla(WITHOUT_XLA, _INSTEAD)
        execution_mode("fused")
        _seed(job, number)
        _worker_info = WorkerInfo(number, job.num_workers, job.base_seed + number, job.dataset)
        _serve(job, number, Channel(connection))
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass  # the other side has ended, or raises the KeyboardInterrupt itself


def _serve(job: Job, number: int, channel: Channel) -> None:
    where = f"in DataLoader worker process {number}"
    fetcher: MapFetcher | IterableFetcher | None = None
    found: Any = None
    try:
        if job.worker_init_fn is not None:
            job.worker_init_fn(number)
    except Exception:
        found = ExceptionWrapper(where)
    while True:
        asked = channel.receive()
        if asked == RESUME:
            fetcher = None
            continue
        task, keys = asked
        try:
            if found is None:
                if fetcher is None:
                    fetcher = job.fetcher()
                found = fetcher.fetch(keys)
        except Exception as error:
            found = Ended() if job.iterable and isinstance(error, StopIteration) else ExceptionWrapper(where)
        _answer(channel, task, found, where)
        found = None


def _answer(channel: Channel, task: int, found: Any, where: str) -> None:
    try:
        channel.send((task, found))
    except (EOFError, ConnectionError):
        raise
    except Exception:  # it cannot be pickled, or what it is computed from has failed
        if isinstance(found, ExceptionWrapper):
            found.exc_type = RuntimeError
        else:
            found = ExceptionWrapper(where)
        channel.send((task, found))
