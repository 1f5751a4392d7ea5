"""`torch.distributed.fsdp`: classes that nothing is of, for `isinstance`."""

from torchgrad_jax import nn
from torchgrad_jax.runtime.passing_through import never_made, refused

__all__ = ["FSDPModule", "FullyShardedDataParallel", "fully_shard"]

_INSTEAD = "parameters are spread over devices by jax.sharding, in a function that torchgrad_jax.to_jax(module) gives"
FSDPModule = never_made("torch.distributed.fsdp.FSDPModule", _INSTEAD)
FullyShardedDataParallel = never_made("torch.distributed.fsdp.FullyShardedDataParallel", _INSTEAD, nn.Module)
fully_shard = refused("torch.distributed.fsdp.fully_shard", _INSTEAD)
