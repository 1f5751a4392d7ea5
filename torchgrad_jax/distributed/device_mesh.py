"""`torch.distributed.device_mesh`: a class that nothing is of, for `isinstance` and annotations."""

from torchgrad_jax.runtime.passing_through import never_made, refused

__all__ = ["DeviceMesh", "init_device_mesh"]

_INSTEAD = "one process uses all of JAX's devices: make a jax.sharding.Mesh of jax.devices()"
DeviceMesh = never_made("torch.distributed.device_mesh.DeviceMesh", _INSTEAD)
init_device_mesh = refused("torch.distributed.device_mesh.init_device_mesh", _INSTEAD)
