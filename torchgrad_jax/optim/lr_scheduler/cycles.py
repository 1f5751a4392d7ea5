"""Schedules that go round: warm restarts, cycles, and one cycle. The last two change the momentum the other way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchgrad_jax.optim.lr_scheduler.base import LRScheduler, check_optimizer, copied, per_group, set_rate
from torchgrad_jax.optim.lr_scheduler.factors import remembered_function


class CosineAnnealingWarmRestarts(LRScheduler):
    """From the first learning rate to `eta_min` along a cosine, again and again: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm
    Restarts" (2017). The first round takes `T_0` epochs, each later one `T_mult` times as many. ValueError for settings out of their range."""

    def __init__(self, optimizer: Any, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min, self.T_cur = T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """See LRScheduler."""
        self._schedule_warn_outside_step()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """See LRScheduler. An epoch may be named, and be a part of one, as after each batch. ValueError for a negative one."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur = self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur = self.T_cur % self.T_i
                self.T_i = self.T_i * self.T_mult
        else:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self._schedule_begin_at(epoch)
        self.last_epoch = math.floor(epoch)
        with self._schedule_within_step():
            found = self.get_lr()
        self._schedule_set(found)

    def _schedule_begin_at(self, epoch: float) -> None:
        self.T_i, self.T_cur = self.T_0, epoch
        if epoch >= self.T_0 and self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        elif epoch >= self.T_0:
            rounds = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**rounds - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**rounds


def _check_momentum(optimizer: Any) -> bool:
    """Whether the momentum is the first of "betas". ValueError where there is none."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return "betas" in optimizer.defaults


def _set_momentum(group: dict[str, Any], momentum: Any, use_beta1: bool) -> None:
    if use_beta1:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


def _begin_with(optimizer: Any, most: list[Any], least: list[Any], use_beta1: bool) -> None:
    """Let the momentum of each group be at its most, and the group know between what it goes."""
    for high, low, group in zip(most, least, optimizer.param_groups, strict=True):
        _set_momentum(group, high, use_beta1)
        group["max_momentum"], group["base_momentum"] = high, low


class CyclicLR(LRScheduler):
    """Between `base_lr` and `max_lr`, up in `step_size_up` steps and down in `step_size_down` (None: as many): Smith, "Cyclical Learning Rates for
    Training Neural Networks" (2017).

    mode: "triangular"; "triangular2", half as high each time; "exp_range", gamma^step as high. scale_fn: how high instead, a function of the number
    of the cycle or (scale_mode="iterations") of the step. cycle_momentum: the momentum goes from max_momentum to base_momentum meanwhile. ValueError
    for another mode, for lists of other lengths than there are groups, and for an optimizer without momentum.
    """

    def __init__(
        self, optimizer: Any, base_lr: float | list[float], max_lr: float | list[float], step_size_up: int = 2000, step_size_down: int | None = None,
        mode: str = "triangular", gamma: float = 1.0, scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle",
        cycle_momentum: bool = True, base_momentum: float = 0.8, max_momentum: float = 0.9, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        check_optimizer(optimizer)
        self.optimizer = optimizer
        # A tensor among them becomes the group's rate, which is written to: not the user's. That it is written to here too is as in PyTorch.
        base_lrs = [copied(lr) for lr in per_group("base_lr", base_lr, optimizer)]
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups, strict=True):
                set_rate(group, lr)
        self.max_lrs = per_group("max_lr", max_lr, optimizer)
        up = float(step_size_up)
        down = up if step_size_down is None else float(step_size_down)
        self.total_size, self.step_ratio = up + down, up / (up + down)
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _check_momentum(optimizer)
            self.base_momentums = per_group("base_momentum", base_momentum, optimizer)
            self.max_momentums = per_group("max_momentum", max_momentum, optimizer)
            if last_epoch == -1:
                _begin_with(optimizer, self.max_momentums, self.base_momentums, self.use_beta1)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_scale_fn(self) -> None:
        if self._scale_fn_custom is None:
            self.scale_mode = "iterations" if self.mode == "exp_range" else "cycle"

    def scale_fn(self, x: float) -> float:
        """How high a cycle is."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "exp_range":
            return self._exp_range_scale_fn(self.gamma, x)
        return self._triangular_scale_fn(x) if self.mode == "triangular" else self._triangular2_scale_fn(x)

    @staticmethod
    def _triangular_scale_fn(x: float) -> float:
        return 1.0

    @staticmethod
    def _triangular2_scale_fn(x: float) -> float:
        return 1 / (2.0 ** (x - 1))

    @staticmethod
    def _exp_range_scale_fn(gamma: float, x: float) -> float:
        return gamma**x

    def get_lr(self) -> list[Any]:
        """See LRScheduler. Sets the momentum."""
        self._schedule_warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        at = cycle if self.scale_mode == "cycle" else self.last_epoch
        if self.cycle_momentum:
            ranges = zip(self.base_momentums, self.max_momentums, strict=True)
            momenta = [high - (high - low) * height * self.scale_fn(at) for low, high in ranges]
            for group, momentum in zip(self.optimizer.param_groups, momenta, strict=True):
                _set_momentum(group, momentum, self.use_beta1)
        return [low + (high - low) * height * self.scale_fn(at) for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """See LRScheduler. Of a function of the user's, the attributes if it is an object."""
        found = super().state_dict()
        function = found.pop("_scale_fn_custom")
        return found | {"_scale_fn_custom": None if function is None else remembered_function(function)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See LRScheduler. A function of the user's stays; if it is an object it gets its attributes."""
        attributes = state_dict.get("_scale_fn_custom")
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_scale_fn_custom"})
        if attributes is not None:
            self._scale_fn_custom.__dict__.update(attributes)  # type: ignore[union-attr] - it had some
        self._init_scale_fn()


def _check_positive(name: str, value: Any) -> None:
    if value <= 0 or not isinstance(value, int):
        raise ValueError(f"Expected positive integer {name}, but got {value}")


class OneCycleLR(LRScheduler):
    """One cycle, from max_lr / div_factor up to max_lr in `pct_start` of all steps, and down to 1 / final_div_factor of where it began: Smith and
    Topin, "Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates" (2018).

    total_steps, or epochs and steps_per_epoch, say how many steps there are. anneal_strategy: "cos" or "linear". three_phase: down to where it began
    in as many steps as up, and then further down. cycle_momentum: the momentum goes the other way, between max_momentum and base_momentum. ValueError
    for settings out of their range, for an optimizer without momentum, and in a step beyond the last one.
    """

    def __init__(
        self, optimizer: Any, max_lr: float | list[float], total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos", cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85, max_momentum: float | list[float] = 0.95, div_factor: float = 25.0,
        final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        check_optimizer(optimizer)
        self.optimizer = optimizer
        if total_steps is not None:
            _check_positive("total_steps", total_steps)
            self.total_steps = total_steps
        elif epochs is not None and steps_per_epoch is not None:
            _check_positive("epochs", epochs)
            _check_positive("steps_per_epoch", steps_per_epoch)
            self.total_steps = epochs * steps_per_epoch
        else:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        self._schedule_phases = _phases(self.total_steps, pct_start, three_phase)
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        max_lrs = per_group("max_lr", max_lr, optimizer)
        if last_epoch == -1:
            for high, group in zip(max_lrs, optimizer.param_groups, strict=True):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _check_momentum(optimizer)
            most, least = per_group("max_momentum", max_momentum, optimizer), per_group("base_momentum", base_momentum, optimizer)
            if last_epoch == -1:
                _begin_with(optimizer, most, least, self.use_beta1)
        super().__init__(optimizer, last_epoch)

    def _anneal_func(self, start: Any, end: Any, pct: float) -> Any:
        return self._annealing_cos(start, end, pct) if self._anneal_func_type == "cos" else self._annealing_linear(start, end, pct)

    @staticmethod
    def _annealing_cos(start: Any, end: Any, pct: float) -> Any:
        return end + (start - end) / 2.0 * (math.cos(math.pi * pct) + 1)

    @staticmethod
    def _annealing_linear(start: Any, end: Any, pct: float) -> Any:
        return (end - start) * pct + start

    def get_lr(self) -> list[Any]:
        """See LRScheduler. Sets the momentum."""
        self._schedule_warn_outside_step()
        at = self.last_epoch
        if at > self.total_steps:
            raise ValueError(f"Tried to step {at} times. The specified number of total steps is {self.total_steps}")
        begin = 0.0
        phase = self._schedule_phases[-1]
        for phase in self._schedule_phases:
            if at <= phase["end_step"] or phase is self._schedule_phases[-1]:
                break
            begin = phase["end_step"]
        pct = (at - begin) / (phase["end_step"] - begin)
        found = []
        for group in self.optimizer.param_groups:
            found.append(copied(self._anneal_func(group[phase["start_lr"]], group[phase["end_lr"]], pct)))
            if self.cycle_momentum:
                momentum = self._anneal_func(group[phase["start_momentum"]], group[phase["end_momentum"]], pct)
                _set_momentum(group, momentum, self.use_beta1)
        return found


def _phases(total: int, pct_start: float, three: bool) -> list[dict[str, Any]]:
    """Where each phase ends, and from which settings of a group to which it goes."""

    def phase(end: float, lrs: tuple[str, str], momentums: tuple[str, str]) -> dict[str, Any]:
        return {
            "end_step": end, "start_lr": lrs[0], "end_lr": lrs[1], "start_momentum": momentums[0], "end_momentum": momentums[1]
        }  # fmt: skip

    first, least, most, low, high = "initial_lr", "min_lr", "max_lr", "base_momentum", "max_momentum"
    up = phase(float(pct_start * total) - 1, (first, most), (high, low))
    if not three:
        return [up, phase(total - 1, (most, least), (low, high))]
    down = phase(float(2 * pct_start * total) - 2, (most, first), (low, high))
    return [up, down, phase(total - 1, (first, least), (high, high))]
