"""`torch.nn`."""

from torchgrad_jax.nn import attention, functional, grad, init, modules, parallel, parameter, utils
from torchgrad_jax.nn import purity as _purity
from torchgrad_jax.nn.modules import *
from torchgrad_jax.nn.modules import __all__ as _modules
from torchgrad_jax.nn.parameter import UninitializedBuffer, UninitializedParameter, factory_kwargs

__all__ = [
    "UninitializedBuffer", "UninitializedParameter", "attention", "factory_kwargs", "functional", "grad", "init", "modules", "parallel", "parameter",
    "utils", *_modules,
]  # fmt: skip

_purity.begin()
