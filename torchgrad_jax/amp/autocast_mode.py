"""`torch.amp.autocast_mode`."""

from torchgrad_jax.autograd.autocast_mode import autocast, autocast_decorator, custom_bwd, custom_fwd, is_autocast_available

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]
