"""`torch.distributed.distributed_c10d`: the functions of `torch.distributed` where PyTorch has them, which other packages import them from."""

from torchgrad_jax.distributed import *  # noqa: F403
from torchgrad_jax.distributed import __all__ as __all__
from torchgrad_jax.distributed import _get_default_group as _get_default_group
