"""`torch.testing`: comparing tensors, making tensors to compare; and `compare`, a function through this package, PyTorch and JAX."""

from torchgrad_jax.comparing.functions import compare
from torchgrad_jax.testing.comparison import assert_allclose, assert_close
from torchgrad_jax.testing.creation import make_tensor

__all__ = ["assert_allclose", "assert_close", "compare", "make_tensor"]
