"""`torch.utils`: what programs use beside tensors and gradients."""

from torchgrad_jax.utils import _pytree, dlpack, hooks

__all__ = ["_pytree", "dlpack", "hooks"]
