"""`torch.nn`."""

from torchgrad_jax.nn import functional, init, modules, utils
from torchgrad_jax.nn.modules import *
from torchgrad_jax.nn.modules import __all__ as _modules

__all__ = ["functional", "init", "modules", "utils", *_modules]
