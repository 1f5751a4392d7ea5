"""Schedules that multiply the learning rate by a factor that the epoch tells.

Most come in two forms. The one of `get_lr` makes a learning rate of the one before it, so that several schedules may change it together; the closed
form makes it of the first one, and serves those who name an epoch.
"""

from __future__ import annotations

import math
import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from torchgrad_jax.optim.lr_scheduler.base import LRScheduler, rates


def remembered_function(function: Any) -> dict[str, Any] | None:
    """What of a function is kept in a state: the attributes of one that is an object."""
    return None if isinstance(function, types.FunctionType) else function.__dict__.copy()


class _ByFunctions(LRScheduler):
    """Schedules by functions of the epoch: one for all groups, or a list of one each. ValueError for another number of them."""

    def __init__(self, optimizer: Any, lr_lambda: Callable[[int], float] | list[Callable[[int], float]], last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        if not isinstance(lr_lambda, (list, tuple)):
            self.lr_lambdas: list[Any] = [lr_lambda] * groups
        elif len(lr_lambda) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(lr_lambda)}")
        else:
            self.lr_lambdas = list(lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """See LRScheduler. Of functions, the attributes of those that are objects."""
        found = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "lr_lambdas")}
        return found | {"lr_lambdas": [remembered_function(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See LRScheduler. The functions stay, those that are objects get their attributes."""
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        for function, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if attributes is not None:
                function.__dict__.update(attributes)


class LambdaLR(_ByFunctions):
    """The first learning rate times a function of the epoch."""

    def get_lr(self) -> list[Any]:
        """See LRScheduler."""
        self._schedule_warn_outside_step()
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_ByFunctions):
    """The learning rate before times a function of the epoch."""

    def get_lr(self) -> list[Any]:
        """See LRScheduler."""
        self._schedule_warn_outside_step()
        if self._is_initial:
            return rates(self.optimizer)
        return [lr * f(self.last_epoch) for f, lr in zip(self.lr_lambdas, rates(self.optimizer), strict=True)]


class StepLR(LRScheduler):
    """Multiplied by gamma every `step_size` epochs."""

    def __init__(self, optimizer: Any, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """See LRScheduler."""
        self._schedule_warn_outside_step()
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return rates(self.optimizer)
        return [lr * self.gamma for lr in rates(self.optimizer)]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Multiplied by gamma at each of the milestones."""

    def __init__(self, optimizer: Any, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """See LRScheduler."""
        self._schedule_warn_outside_step()
        if self.last_epoch not in self.milestones:
            return rates(self.optimizer)
        return [lr * self.gamma ** self.milestones[self.last_epoch] for lr in rates(self.optimizer)]

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Times `factor` until `total_iters` epochs are over. ValueError for a factor outside [0, 1]."""

    def __init__(self, optimizer: Any, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1.0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """See LRScheduler."""
        self._schedule_warn_outside_step()
        if self.last_epoch == 0:
            return [lr * self.factor for lr in rates(self.optimizer)]
        if self.last_epoch != self.total_iters:
            return rates(self.optimizer)
        return [lr * (1.0 / self.factor) for lr in rates(self.optimizer)]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * (self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Times a factor that goes from `start_factor` to `end_factor` in `total_iters` epochs. ValueError for factors outside (0, 1] and [0, 1]."""

    def __init__(
        self, optimizer: Any, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5, last_epoch: int = -1
    ) -> None:  # fmt: skip
        if not 0 < start_factor <= 1.0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1.0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """See LRScheduler."""
        self._schedule_warn_outside_step()
        if self.last_epoch == 0:
            return [lr * self.start_factor for lr in rates(self.optimizer)]
        if self._is_initial or self.last_epoch > self.total_iters:
            return rates(self.optimizer)
        change = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * change
        return [lr * (1.0 + change / before) for lr in rates(self.optimizer)]

    def _get_closed_form_lr(self) -> list[Any]:
        change, passed = self.end_factor - self.start_factor, min(self.total_iters, self.last_epoch)
        return [base * (self.start_factor + change * passed / self.total_iters) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplied by gamma every epoch."""

    def __init__(self, optimizer: Any, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """See LRScheduler."""
        self._schedule_warn_outside_step()
        return rates(self.optimizer) if self._is_initial else [lr * self.gamma for lr in rates(self.optimizer)]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Times (1 - epoch / total_iters)^power, until that is 0."""

    def __init__(self, optimizer: Any, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """See LRScheduler."""
        self._schedule_warn_outside_step()
        if self._is_initial or self.last_epoch > self.total_iters:
            return rates(self.optimizer)
        factor = ((1.0 - self.last_epoch / self.total_iters) / (1.0 - (self.last_epoch - 1) / self.total_iters)) ** self.power
        return [lr * factor for lr in rates(self.optimizer)]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * (1.0 - min(self.total_iters, self.last_epoch) / self.total_iters) ** self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """From the first learning rate to `eta_min` in `T_max` epochs, and back, along a cosine: Loshchilov and Hutter, "SGDR: Stochastic Gradient
    Descent with Warm Restarts" (2017), without restarts."""

    def __init__(self, optimizer: Any, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """See LRScheduler."""
        self._schedule_warn_outside_step()
        if self._is_initial:
            return rates(self.optimizer)
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # the learning rate before was the least
            up = (1 - math.cos(math.pi / self.T_max)) / 2
            return [lr + (base - self.eta_min) * up for base, lr in zip(self.base_lrs, rates(self.optimizer), strict=True)]
        now, before = (1 + math.cos(math.pi * epoch / self.T_max) for epoch in (self.last_epoch, self.last_epoch - 1))
        return [now / before * (lr - self.eta_min) + self.eta_min for lr in rates(self.optimizer)]

    def _get_closed_form_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]
