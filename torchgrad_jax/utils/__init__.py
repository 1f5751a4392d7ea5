"""`torch.utils`: what programs use beside tensors and gradients."""

from torchgrad_jax.utils import dlpack, hooks

__all__ = ["dlpack", "hooks"]
