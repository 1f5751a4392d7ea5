"""Schedules made of schedules: one after the other, or all together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from torchgrad_jax.optim.lr_scheduler.base import LRScheduler, rates, set_rate
from torchgrad_jax.optim.lr_scheduler.plateau import ReduceLROnPlateau


class _Composed(LRScheduler):
    """What is made of schedules: its state has theirs."""

    _schedulers: list[Any]

    def _schedule_check(self, schedulers: Sequence[Any], optimizer: Any) -> None:
        name = type(self).__name__
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be specified when calling `step`, "
                    f"but got one at index {i} in the given schedulers sequence."
                )
            if scheduler.optimizer != optimizer:
                raise ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got scheduler {type(scheduler).__name__} at index {i} has "
                    f"{scheduler.optimizer}, which is different from {type(optimizer).__name__}."
                )

    def state_dict(self) -> dict[str, Any]:
        """See LRScheduler."""
        found = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "_schedulers")}
        return found | {"_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See LRScheduler."""
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)


class SequentialLR(_Composed):
    """One schedule after the other: the next begins at each of the milestones. ValueError where there is not one schedule more than milestones, where
    they are of several optimizers, and for ReduceLROnPlateau."""

    def __init__(self, optimizer: Any, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1) -> None:
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        self._schedule_check(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone points, but got number of "
                f"schedulers {len(schedulers)} and the number of milestones to be equal to {len(milestones)}"
            )
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Each schedule has begun when it was made: that is taken back, and the first one begins.
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        self.recursive_undo()
        self._schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Let all schedules within be an epoch earlier."""
        within = self if sched is None else sched
        if hasattr(within, "_schedulers"):
            for scheduler in within._schedulers:
                self.recursive_undo(scheduler)
        elif hasattr(within, "last_epoch"):
            within.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override] - no epoch can be named
        """See LRScheduler."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Composed):
    """Several schedules, each changing what the one before has set. ValueError where there is none, where they are of several optimizers, and for
    ReduceLROnPlateau."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Any = None) -> None:
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        self._schedule_check(schedulers, optimizer)
        self._schedulers = list(schedulers)
        self.optimizer = optimizer
        self._last_lr = rates(optimizer)

    def step(self) -> None:  # type: ignore[override] - no epoch can be named
        """See LRScheduler."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = rates(self._schedulers[-1].optimizer)
