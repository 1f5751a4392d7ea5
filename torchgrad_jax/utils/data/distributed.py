"""`DistributedSampler`: each of several processes its part of a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar, cast

from torchgrad_jax.functions.random import Generator
from torchgrad_jax.utils.data.dataset import Dataset
from torchgrad_jax.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]

_T_co = TypeVar("_T_co", covariant=True)
_NO_GROUP = (
    "Default process group has not been initialized, please make sure to call init_process_group.\n"
    "torchgrad_jax has no process groups: pass num_replicas and rank, say jax.process_count() and jax.process_index()."
)


class DistributedSampler(Sampler[_T_co]):
    """Of the keys of a dataset every `num_replicas`-th, from `rank` on, in an order that is shuffled by `seed` and the epoch.

    So that each process has as many, some keys come twice, or with `drop_last` some are left out. Call `set_epoch` before a pass for another order.
    ValueError without `num_replicas` and `rank`, and for a rank that is none.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            raise ValueError(_NO_GROUP)
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        length = len(cast(Any, dataset))
        self.num_samples = length // num_replicas if drop_last else -(-length // num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[Any]:
        length = len(cast(Any, self.dataset))
        order = Generator().manual_seed(self.seed + self.epoch).randperm(length).tolist() if self.shuffle else list(range(length))
        if not self.drop_last:
            order = (order * -(-self.total_size // max(length, 1)))[: self.total_size]
        return iter(order[: self.total_size][self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass have the order of this epoch."""
        self.epoch = epoch
