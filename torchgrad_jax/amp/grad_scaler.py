"""`torch.amp.grad_scaler`."""

from torchgrad_jax.autograd.grad_scaler import GradScaler, OptState

__all__ = ["GradScaler", "OptState"]
