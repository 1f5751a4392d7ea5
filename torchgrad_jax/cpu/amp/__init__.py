"""`torch.cpu.amp`: the older names of `torch.amp` for the host."""

from torchgrad_jax.cpu.amp import autocast_mode, grad_scaler
from torchgrad_jax.cpu.amp.autocast_mode import autocast
from torchgrad_jax.cpu.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "autocast_mode", "grad_scaler"]
