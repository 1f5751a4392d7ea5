"""`torch.utils.dlpack`."""

from torchgrad_jax.tensor.dlpack import DLDeviceType, from_dlpack, to_dlpack

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]
