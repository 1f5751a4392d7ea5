"""`torch.optim`: what changes parameters by their gradients."""

from torchgrad_jax.optim.adam import Adam as Adam
from torchgrad_jax.optim.adamw import AdamW as AdamW
from torchgrad_jax.optim.optimizer import Optimizer as Optimizer
from torchgrad_jax.optim.sgd import SGD as SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
