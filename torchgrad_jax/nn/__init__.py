"""`torch.nn`."""

from torchgrad_jax.nn import functional

__all__ = ["functional"]
