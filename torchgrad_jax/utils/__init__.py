"""`torch.utils`: what programs use beside tensors and gradients."""

from torchgrad_jax.utils import hooks

__all__ = ["hooks"]
