"""`torch.linalg`."""

from torchgrad_jax.tensor import linear_algebra as _linear_algebra
from torchgrad_jax.tensor import reductions as _reductions

globals().update(_linear_algebra.LINALG)
globals().update(_reductions.LINALG)
