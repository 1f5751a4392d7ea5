"""`torch.utils.serialization`: `config` has what is set for saving and loading."""

from torchgrad_jax.utils.serialization import config

__all__ = ["config"]
