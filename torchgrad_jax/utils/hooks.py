"""`torch.utils.hooks`: the handle that removes a hook."""

from torchgrad_jax.core.node import RemovableHandle

__all__ = ["RemovableHandle"]
