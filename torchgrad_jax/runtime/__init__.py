"""What is a value, what is pending, when and how a program runs. Knows JAX; knows no Tensor and no autograd."""

from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.modes import baseline_tier, execution_mode

__all__ = ["baseline_tier", "counters", "execution_mode"]
