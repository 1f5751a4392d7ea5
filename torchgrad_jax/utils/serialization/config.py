"""`torch.utils.serialization.config`: what is set for saving and loading, as attributes of `load` and `save`."""

from torchgrad_jax.runtime.settings import load_settings as load
from torchgrad_jax.runtime.settings import save_settings as save

__all__ = ["load", "save"]
