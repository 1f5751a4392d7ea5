"""`torch.utils.dlpack`."""

from torchgrad_jax.functions.dlpack import DLDeviceType, from_dlpack, to_dlpack

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]
