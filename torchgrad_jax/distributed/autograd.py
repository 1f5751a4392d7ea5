"""`torch.distributed.autograd`: there are no backward passes over several processes."""

from torchgrad_jax.runtime.passing_through import no

__all__ = ["is_available"]

is_available = no
