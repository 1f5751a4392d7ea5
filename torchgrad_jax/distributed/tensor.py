"""`torch.distributed.tensor`: a class that nothing is of, for `isinstance`."""

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.passing_through import never_made

__all__ = ["DTensor"]

DTensor = never_made("torch.distributed.tensor.DTensor", "arrays are spread over devices by jax.sharding", Tensor)
