"""`torch.amp`: mixed precision."""

from torchgrad_jax.amp import autocast_mode, grad_scaler
from torchgrad_jax.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from torchgrad_jax.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "autocast_mode", "custom_bwd", "custom_fwd", "grad_scaler", "is_autocast_available"]
