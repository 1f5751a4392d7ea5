"""What schedules of the learning rate share: they follow the steps of an optimizer, and set the learning rates of its groups."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.optim.optimizer import Optimizer
from torchgrad_jax.optim.scalars import set_number

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use `scheduler.step()` to step the "
    "scheduler. During the deprecation, if epoch is different from None, the closed form is used instead of the new chainable form, where available. "
    "Please open an issue if you are unable to replicate your use case: https://github.com/pytorch/pytorch/issues/new/choose."
)
_HOW_TO = "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
_OVERRIDDEN = (
    "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. Please, make sure to call `optimizer.step()` "
    f"before `lr_scheduler.step()`. {_HOW_TO}"
)
_TOO_EARLY = (
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should call them in the opposite order: "
    "`optimizer.step()` before `lr_scheduler.step()`.  Failure to do this will result in PyTorch skipping the first value of the learning rate "
    f"schedule. {_HOW_TO}"
)
_NOT_RESUMED = (
    "param '{}' is not specified in param_groups[{}] when resuming scheduler with last_epoch >= 0.\nThis typically happens when:\n"
    "1. You're trying to resume training from a checkpoint but haven't properly loaded the optimizer state\n"
    "2. You're using last_epoch >= 0 for a fresh training run (not recommended)"
)


def check_optimizer(optimizer: Any) -> None:
    """TypeError for anything but an Optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def warn_of_epochs() -> None:
    """That a schedule was told an epoch."""
    warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=3)


def copied(number: Any) -> Any:
    """A learning rate that stays what it is."""
    return number.clone() if isinstance(number, Tensor) else number


def rates(optimizer: Any, key: str = "lr") -> list[Any]:
    """The learning rates of an optimizer's groups, as they are now."""
    return [copied(group[key]) for group in optimizer.param_groups]


def set_rate(group: dict[str, Any], lr: Any, key: str = "lr") -> None:
    """Set the learning rate of a group; one that is a tensor stays the same tensor."""
    if isinstance(group[key], Tensor):
        set_number(group[key], lr)
    else:
        group[key] = lr


def per_group(name: str, value: Any, optimizer: Any) -> list[Any]:
    """A setting for each group, given one for all or a list. ValueError for a list of another length."""
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, param_groups has {count}.")
    return list(value)


def _tell_of_steps(optimizer: Any) -> None:
    """Let the optimizer note that it has taken a step."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    function, owner = optimizer.step.__func__, weakref.ref(optimizer)

    @functools.wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        found: Any = owner()
        found._opt_called = True
        return function(found, *args, **kwargs)

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = step


class LRScheduler:
    """The base of schedules: subclasses have a `get_lr`, which says the learning rates of all groups at `last_epoch`.

    A group remembers its first learning rate as "initial_lr". last_epoch: -1 to begin; else the epoch to go on from. TypeError for anything but an
    Optimizer, KeyError where a schedule is to go on and a group has no "initial_lr".
    """

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False

    def __init__(self, optimizer: Any, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(_NOT_RESUMED.format("initial_lr", i))
        self.base_lrs: list[Any] = rates(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _tell_of_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    @contextmanager
    def _schedule_within_step(self) -> Iterator[None]:
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    def _schedule_warn_outside_step(self) -> None:
        """What `get_lr` begins with: called by users it says something else than they expect."""
        if not self._get_lr_called_within_step:
            warnings.warn("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.", UserWarning, stacklevel=3)

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule is, but for the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Become what `state_dict` says."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The learning rates that were set last."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The learning rates of all groups at `last_epoch`."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates of the next epoch, or (deprecated) of the one that is named."""
        if self._step_count == 1:
            if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
                warnings.warn(_OVERRIDDEN, UserWarning, stacklevel=2)
            elif not getattr(self.optimizer, "_opt_called", False):
                warnings.warn(_TOO_EARLY, UserWarning, stacklevel=2)
        self._step_count += 1
        if epoch is not None:
            warn_of_epochs()
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        with self._schedule_within_step():
            if epoch is None:
                self.last_epoch += 1
                found = self.get_lr()
            else:
                self.last_epoch = epoch
                closed = getattr(self, "_get_closed_form_lr", self.get_lr)
                found = closed()
        self._schedule_set(found)

    def _schedule_set(self, found: Iterable[Any]) -> None:
        for group, lr in zip(self.optimizer.param_groups, found, strict=True):
            set_rate(group, lr)
        self._last_lr: list[Any] = rates(self.optimizer)


class _LRScheduler(LRScheduler):
    """The name of LRScheduler from before."""
