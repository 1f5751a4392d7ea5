"""`torch.linalg`."""

from torchgrad_jax.tensor import linear_algebra as _linear_algebra
from torchgrad_jax.tensor import reductions as _reductions
from torchgrad_jax.tensor.overrides import guarded as _guarded

globals().update(_guarded("torch.linalg", {**_linear_algebra.LINALG, **_reductions.LINALG}))
