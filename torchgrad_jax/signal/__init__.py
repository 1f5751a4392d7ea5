"""`torch.signal`."""

from torchgrad_jax.signal import windows

__all__ = ["windows"]
