"""`torch.special`."""

from torchgrad_jax.tensor import arithmetic as _arithmetic
from torchgrad_jax.tensor import reductions as _reductions

globals().update(_reductions.SPECIAL)
globals().update(_arithmetic.SPECIAL)
