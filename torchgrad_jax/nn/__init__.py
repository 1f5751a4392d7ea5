"""`torch.nn`."""

from torchgrad_jax.nn import functional, init, modules
from torchgrad_jax.nn.modules import *
from torchgrad_jax.nn.modules import __all__ as _modules

__all__ = ["functional", "init", "modules", *_modules]
