"""`torch.linalg`."""

from torchgrad_jax.tensor import reductions as _reductions

globals().update(_reductions.LINALG)
