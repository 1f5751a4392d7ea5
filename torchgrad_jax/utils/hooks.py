"""`torch.utils.hooks`: the handle that removes a hook."""

from torchgrad_jax.tensor.node import RemovableHandle

__all__ = ["RemovableHandle"]
