"""`torch.testing`: comparing tensors, making tensors to compare."""

from torchgrad_jax.testing.comparison import assert_allclose, assert_close
from torchgrad_jax.testing.creation import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
