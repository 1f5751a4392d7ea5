"""`torch.nn.utils`."""

from torchgrad_jax.nn.utils import stateless

__all__ = ["stateless"]
