"""What optimizers refuse of their settings, in PyTorch's words. ValueError and RuntimeError."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.tensor import Tensor


def check_lr(lr: Any, foreach: bool | None = False, capturable: bool = True, takes_nan: bool = False) -> None:
    """A learning rate: not negative, one number; no tensor under `foreach` without `capturable`. takes_nan: whether it may be NaN."""
    if isinstance(lr, Tensor):
        if foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    if not lr >= 0.0 and not (takes_nan and lr != lr):
        raise ValueError(f"Invalid learning rate: {lr}")


def check_not_negative(takes_nan: bool = False, **settings: Any) -> None:
    """Each of them at least 0, or NaN if it `takes_nan`."""
    for name, value in settings.items():
        if not value >= 0.0 and not (takes_nan and value != value):
            raise ValueError(f"Invalid {name} value: {value}")


def check_betas(betas: Any) -> None:
    """Two decay rates, each in [0, 1)."""
    for i in range(2):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def check_fused(optimizer: Any, fused: bool | None, foreach: bool | None, differentiable: bool) -> None:
    """What `fused` goes together with, once the groups are there. An optimizer that is fused takes the gradients' scale from a GradScaler."""
    if not fused:
        return
    if differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    optimizer._step_supports_amp_scaling = True
    optimizer._need_device_dtype_check_for_fused = True
    if foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
