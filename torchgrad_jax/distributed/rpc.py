"""`torch.distributed.rpc`: there are no calls of functions in other processes."""

from torchgrad_jax.runtime.passing_through import no

__all__ = ["is_available"]

is_available = no
