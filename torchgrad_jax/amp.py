"""`torch.amp`: mixed precision, which can be asked for but not yet be switched on."""

from torchgrad_jax.autograd.mixed_precision import GradScaler, autocast, custom_bwd, custom_fwd, is_autocast_available

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
