"""`torch.cpu.amp.grad_scaler`."""

from __future__ import annotations

from torchgrad_jax.autograd.grad_scaler import GradScalerOf

__all__ = ["GradScaler"]


class GradScaler(GradScalerOf):
    """`torch.amp.GradScaler("cpu", ...)`, with a warning."""

    device_type = "cpu"
