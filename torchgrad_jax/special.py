"""`torch.special`."""

import torchgrad_jax.nn.activation as _activation
from torchgrad_jax.tensor import arithmetic as _arithmetic
from torchgrad_jax.tensor import reductions as _reductions
from torchgrad_jax.tensor.overrides import guarded as _guarded

_softmax = {name: _activation.along_dim(name) for name in ("softmax", "log_softmax")}
globals().update(_guarded("torch.special", {**_reductions.SPECIAL, **_arithmetic.SPECIAL, **_softmax}))
