"""What is a value, what is pending, when and how a program runs. Knows JAX; knows no Tensor and no autograd."""

from torchgrad_jax._typed import is_used as typed_core
from torchgrad_jax.runtime import program as _program  # what is recorded anywhere needs to be run
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.execution import execution_mode
from torchgrad_jax.runtime.modes import baseline_tier

__all__ = ["baseline_tier", "counters", "execution_mode", "typed_core"]
del _program
