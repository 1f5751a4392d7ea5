"""The levels that a transform can open: of reverse mode, of forward mode, and of vmap."""

from torchgrad_jax.lifting.forward import ForwardLevel as ForwardLevel
from torchgrad_jax.lifting.forward import forward_level as forward_level
from torchgrad_jax.lifting.level import Level as Level
from torchgrad_jax.lifting.level import held_tensor as held_tensor
from torchgrad_jax.lifting.mapping import BatchLevel as BatchLevel
from torchgrad_jax.lifting.mapping import add_batch_dim as add_batch_dim
from torchgrad_jax.lifting.mapping import batch_level as batch_level
from torchgrad_jax.lifting.mapping import open_batch_level as open_batch_level
from torchgrad_jax.lifting.mapping import remove_batch_dim as remove_batch_dim
from torchgrad_jax.lifting.reverse import GradLevel as GradLevel
from torchgrad_jax.lifting.reverse import grad_level as grad_level
