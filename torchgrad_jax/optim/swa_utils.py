"""`torch.optim.swa_utils`: averages of a model's parameters, and what goes with them.

Izmailov, Podoprikhin, Garipov, Vetrov and Wilson, "Averaging Weights Leads to Wider Optima and Better Generalization" (2018); exponential averages:
Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging" (1992).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import tensor
from torchgrad_jax.nn.modules.batchnorm import _BatchNorm
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.optim.lr_scheduler.base import LRScheduler, per_group, rates
from torchgrad_jax.optim.scalars import number_of, set_number

__all__ = ["AveragedModel", "SWALR", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn"]

PARAM_LIST = tuple[Tensor, ...] | list[Tensor]


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _host_number(number: Any) -> Any:
    """How many models were averaged, as Python's number if it is at hand."""
    known = number_of(number) if isinstance(number, Tensor) else number
    return number if known is None else known


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[PARAM_LIST, PARAM_LIST, Any], None]:
    """Exponential averages, of lists: a = decay * a + (1 - decay) * p, in place. ValueError for a decay outside [0, 1]."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list: PARAM_LIST, current_param_list: PARAM_LIST, _: Any) -> None:
        for average, current in zip(ema_param_list, current_param_list, strict=True):
            if average.is_floating_point() or average.is_complex():
                average.lerp_(current, 1 - decay)
            else:
                average.copy_(average * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[[PARAM_LIST, PARAM_LIST, Any], None]:
    """Averages of equal weights, of lists: a = a + (p - a) / (n + 1), in place."""

    @no_grad()
    def swa_update(averaged_param_list: PARAM_LIST, current_param_list: PARAM_LIST, num_averaged: Any) -> None:
        number = _host_number(num_averaged)
        for average, current in zip(averaged_param_list, current_param_list, strict=True):
            if average.is_floating_point() or average.is_complex():
                weight = 1 / (number + 1)
                average.lerp_(current, weight.to(average.dtype) if isinstance(weight, Tensor) else weight)
            else:
                average.copy_(average + (current - average) / (number + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """Exponential averages: decay * a + (1 - decay) * p. ValueError for a decay outside [0, 1]."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """Averages of equal weights: a + (p - a) / (n + 1)."""

    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A model whose parameters are averages of those of `model`, of which it begins as a copy.

    avg_fn: the average of one parameter, of (average, parameter, how many were averaged). multi_avg_fn: writes the averages of a list of parameters.
    Neither: averages of equal weights. use_buffers: whether buffers are averaged too; else they are the model's last ones. AssertionError for both
    functions at once.
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: Any = None, avg_fn: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
        multi_avg_fn: Callable[[PARAM_LIST, PARAM_LIST, Any], None] | None = None, use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=dtypes.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the averaged model returns."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of `model` into the averages."""
        averages, current = ([t.detach() for t in self.__averaged(m)] for m in (self.module, model))
        count = number_of(self.n_averaged)
        count = self.n_averaged.item() if count is None else count
        if count == 0:
            for a, c in zip(averages, current, strict=True):
                a.copy_(c)
        elif self.avg_fn is not None:
            for a, c in zip(averages, current, strict=True):
                a.copy_(self.avg_fn(a, c, self.n_averaged.to(a.device)))
        elif self.multi_avg_fn is None:
            get_swa_multi_avg_fn()(averages, current, count)
        elif averages:
            self.multi_avg_fn(averages, current, self.n_averaged.to(averages[0].device))
        if not self.use_buffers:
            for a, c in zip(self.module.buffers(), model.buffers(), strict=True):
                a.detach().copy_(c.detach().to(a.device))
        set_number(self.n_averaged, int(count) + 1)

    def __averaged(self, module: Any) -> Iterable[Tensor]:
        return itertools.chain(module.parameters(), module.buffers()) if self.use_buffers else module.parameters()


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Let the statistics of the model's batch normalizations be those of all that `loader` gives, in a pass over it. Of a batch that is a list or a
    tuple the first is the input."""
    momenta = {module: module.momentum for module in model.modules() if isinstance(module, _BatchNorm)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.reset_running_stats()
        module.momentum = None  # the mean of all batches
    for batch in loader:
        batch = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(batch if device is None else batch.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """From the learning rate to `swa_lr` in `anneal_epochs` epochs, along a cosine or ("linear") a line, and constant then. ValueError for settings
    out of their range."""

    def __init__(self, optimizer: Any, swa_lr: float, anneal_epochs: int = 10, anneal_strategy: str = "cos", last_epoch: int = -1) -> None:
        for lr, group in zip(per_group("swa_lr", swa_lr, optimizer), optimizer.param_groups, strict=True):
            group["swa_lr"] = lr
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _schedule_annealed(self, step: int) -> float:
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        """See LRScheduler. It counts its own steps, whatever the epoch."""
        self._schedule_warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._schedule_annealed(step - 1), self._schedule_annealed(step)
        found = []
        for group, lr in zip(self.optimizer.param_groups, rates(self.optimizer), strict=True):
            first = lr if before == 1 else (lr - before * group["swa_lr"]) / (1 - before)
            found.append(group["swa_lr"] * now + first * (1 - now))
        return found
