"""`torch.utils`: what programs use beside tensors and gradients."""

from torchgrad_jax.runtime import lazy
from torchgrad_jax.utils import _pytree, dlpack, hooks

checkpoint = lazy.submodules(__name__, ("checkpoint",))["checkpoint"]

__all__ = ["_pytree", "checkpoint", "dlpack", "hooks"]
