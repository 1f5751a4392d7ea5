"""`torch.amp.GradScaler`: losses times a scale, so that gradients of half precision do not vanish, and the scale that is as large as it can be."""

from __future__ import annotations

import functools
import inspect
import operator
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

from torchgrad_jax.autograd.grad_mode import no_grad
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import full
from torchgrad_jax.functions.foreach import _amp_foreach_non_finite_check_and_unscale_, _amp_update_scale_
from torchgrad_jax.runtime.device import gpus
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """Where an optimizer is between two updates of the scale."""

    __module__ = "torchgrad_jax.amp.grad_scaler"  # where users find it

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Iteration:
    """What is known of an optimizer since the last update. found_inf: by device, whether a gradient was not finite."""

    __slots__ = ("stage", "found_inf")

    def __init__(self) -> None:
        self.stage = OptState.READY
        self.found_inf: dict[Any, Tensor] = {}


def _of_tensors(outputs: Any, function: Any) -> Any:
    """`function` of each tensor of an iterable of tensors, in lists and tuples or lazily."""
    if isinstance(outputs, Tensor):
        return function(outputs)
    if not isinstance(outputs, Iterable):
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")
    found = (_of_tensors(x, function) for x in outputs)
    return type(outputs)(found) if isinstance(outputs, (list, tuple)) else found  # type: ignore[call-arg] - of an iterable, as both are


def _total(founds: list[Tensor]) -> Any:
    return functools.reduce(operator.add, founds) if founds else 0


class GradScaler:
    """Scales losses, so that gradients of float16 do not vanish, and steps only where all gradients are finite.

    The scale begins as `init_scale`. An update multiplies it by `growth_factor` after `growth_interval` steps in a row, and by `backoff_factor` after
    a step that was left out because a gradient was infinite or nan. With `enabled=False` it hands everything on. For CUDA without a GPU it warns and
    is off, as in PyTorch. AssertionError for a growth factor of 1 or less, a backoff factor of 1 or more.

    Example::

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    """

    __module__ = "torchgrad_jax.amp.grad_scaler"  # where users find it

    def __init__(
        self,
        device: Any = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device, self._enabled = device, enabled
        if enabled and device == "cuda" and not gpus():
            warn_user("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.")
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError("The growth factor must be > 1.0.")
            if backoff_factor >= 1.0:
                raise AssertionError("The backoff factor must be < 1.0.")
            self._init_scale, self._init_growth_tracker = init_scale, 0
            self._growth_factor, self._backoff_factor, self._growth_interval = growth_factor, backoff_factor, growth_interval
            # Made when the first loss is scaled, on its device.
            self._scale: Tensor | None = None
            self._growth_tracker: Tensor | None = None
            self._optimizers: defaultdict[int, _Iteration] = defaultdict(_Iteration)

    # ------------------------------------------------------------------ one iteration

    def scale(self, outputs: Any) -> Any:
        """A loss, or what is in an iterable of them, times the scale. ValueError for anything else."""
        return _of_tensors(outputs, self._scaled) if self._enabled else outputs

    def _scaled(self, loss: Tensor) -> Tensor:
        if self._scale is None:
            self._begin(loss.device)
        assert self._scale is not None
        return loss * self._scale.to(loss.device)

    def _begin(self, device: Any) -> None:
        self._scale = full((), self._init_scale, dtype=dtypes.float32, device=device)
        self._growth_tracker = full((), self._init_growth_tracker, dtype=dtypes.int32, device=device)

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, so that they can be looked at or clipped before `step`, which does it
        otherwise. RuntimeError where that was done since the last update; ValueError for gradients of float16."""
        if not self._enabled:
            return
        scale = self._needed("unscale_")
        known = self._optimizers[id(optimizer)]
        if known.stage is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if known.stage is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        known.found_inf = self._unscaled(optimizer, scale.double().reciprocal().float(), False)
        known.stage = OptState.UNSCALED

    def _unscaled(self, optimizer: Any, inv_scale: Tensor, float16_too: bool) -> dict[Any, Tensor]:
        """Multiply an optimizer's gradients; by device, whether one of them was not finite."""
        grads: defaultdict[Any, list[Tensor]] = defaultdict(list)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                if grad.dtype is dtypes.float16 and not float16_too:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                grads[grad.device].append(grad)
        found = {device: full((), 0.0, dtype=dtypes.float32, device=device) for device in grads}
        with no_grad():
            for device, of_device in grads.items():
                _amp_foreach_non_finite_check_and_unscale_(of_device, found[device], inv_scale.to(device))
        return found

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step(*args, **kwargs)``, unless a gradient is infinite or nan: then None.

        Gradients are unscaled first, if `unscale_` has not done it. An optimizer with ``_step_supports_amp_scaling`` does both itself: its step finds
        the scale in its attribute `grad_scale` (None where gradients are unscaled) and whether there is such a gradient in `found_inf`. RuntimeError
        for a second step before `update`, and for a closure; AssertionError where nothing was scaled or there is no gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._needed("step")
        known = self._optimizers[id(optimizer)]
        if known.stage is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_of_its_own(optimizer, known, args, kwargs)
        else:
            if known.stage is OptState.READY:
                self.unscale_(optimizer)
            if not known.found_inf:
                raise AssertionError("No inf checks were recorded for this optimizer.")
            result = None if any(found.item() for found in known.found_inf.values()) else optimizer.step(*args, **kwargs)
        known.stage = OptState.STEPPED
        return result

    def _step_of_its_own(self, optimizer: Any, known: _Iteration, args: Any, kwargs: dict[str, Any]) -> Any:
        """The step of an optimizer that looks at the scale itself."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warn_user(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the near future GradScaler registers "
                "`grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer and let the optimizer use them directly.",
                FutureWarning,
            )
            return optimizer.step(*args, **kwargs, grad_scaler=self)
        if known.stage is OptState.READY:
            self._check_inf_per_device(optimizer)
        scale = self._needed("step")
        founds = [found.to(scale.device) for found in known.found_inf.values()]
        optimizer.grad_scale = scale if known.stage is OptState.READY else None
        optimizer.found_inf = _total(founds)
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def update(self, new_scale: Any = None) -> None:
        """Begin the next iteration: let the scale grow or back off, or become `new_scale`, a number or a tensor of one element without a gradient.

        AssertionError where nothing was scaled, or no optimizer was stepped.
        """
        if not self._enabled:
            return
        scale, tracker = self._needed("update"), self._growth_tracker
        if new_scale is not None:
            self._set(scale, new_scale)
        else:
            founds = [found.to(scale.device) for known in self._optimizers.values() for found in known.found_inf.values()]
            if not founds:
                raise AssertionError("No inf checks were recorded prior to update.")
            assert tracker is not None
            with no_grad():
                _amp_update_scale_(scale, tracker, _total(founds), self._growth_factor, self._backoff_factor, self._growth_interval)
        self._optimizers = defaultdict(_Iteration)

    def _set(self, scale: Tensor, new_scale: Any) -> None:
        if not isinstance(new_scale, Tensor):
            scale.fill_(new_scale)
            return
        if new_scale.numel() != 1 or new_scale.requires_grad or not new_scale.is_floating_point():
            raise AssertionError(
                "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with requires_grad=False."
            )  # fmt: skip
        scale.copy_(new_scale)

    def _needed(self, function: str) -> Tensor:
        if self._scale is None:
            fix = "This may indicate your script did not use scaler.scale(loss or outputs) earlier in the iteration."
            raise AssertionError(f"Attempted {function} but _scale is None.  {fix}")
        return self._scale

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        """By device, whether a gradient of an optimizer is not finite; gradients stay as they are."""
        known = self._optimizers[id(optimizer)]
        known.found_inf = self._unscaled(optimizer, full((), 1.0, dtype=dtypes.float32, device=self._needed("_check_inf_per_device").device), True)
        return known.found_inf

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        return self._optimizers[id(optimizer)].found_inf

    # ------------------------------------------------------------------ what it is set to

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale; 1 where it is off."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """What the scale grows by."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set what the scale grows by."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after a step that was left out."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set what the scale is multiplied by after a step that was left out."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps in a row the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many steps in a row the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    # ------------------------------------------------------------------ its state

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors, interval and how many steps there were in a row; empty where it is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker(),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave. RuntimeError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._init_scale, self._init_growth_tracker = state_dict["scale"], state_dict["_growth_tracker"]
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self._enabled:
            if self._optimizers:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after scaler.update()."
                )
            state.update(_init_scale=self.get_scale(), _init_growth_tracker=self._get_growth_tracker(), _scale=None, _growth_tracker=None)
        return state


class GradScalerOf(GradScaler):
    """What `torch.cpu.amp` and `torch.cuda.amp` have: a scaler for one kind of device, with a warning that `torch.amp.GradScaler` does the same."""

    device_type: str

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True
    ) -> None:
        kind = self.device_type
        instead = f"Please use `torch.amp.GradScaler('{kind}', args...)` instead."
        warn_user(f"`torch.{kind}.amp.GradScaler(args...)` is deprecated. {instead}", FutureWarning)
        super().__init__(kind, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
