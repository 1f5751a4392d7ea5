"""PyTorch's autograd programming model on XLA: ``import torchgrad_jax as torch``."""

import jax as _jax

# PyTorch's integers are 64 bits wide, and so are its float64 tensors.
_jax.config.update("jax_enable_x64", True)

from torchgrad_jax.tensor import api as _api  # noqa: E402 - x64 is set before anything makes an array

globals().update(_api.public())

from torchgrad_jax import _C, autograd, linalg, nn, runtime, special, testing, utils  # noqa: E402, F401
from torchgrad_jax import interop as _interop  # noqa: E402
from torchgrad_jax.autograd.grad_mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled  # noqa: E402, F401
from torchgrad_jax.nn import public as _public  # noqa: E402

globals().update(_public.install())
_interop.register()

__version__ = "0.1.0"
