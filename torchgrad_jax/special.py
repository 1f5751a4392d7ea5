"""`torch.special`."""

from torchgrad_jax.tensor import arithmetic as _arithmetic
from torchgrad_jax.tensor import reductions as _reductions
from torchgrad_jax.tensor.overrides import guarded as _guarded

globals().update(_guarded("torch.special", {**_reductions.SPECIAL, **_arithmetic.SPECIAL}))
