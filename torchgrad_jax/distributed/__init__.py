"""`torch.distributed`: there is none of PyTorch's process groups. One process uses all of JAX's devices."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from torchgrad_jax.runtime import lazy
from torchgrad_jax.runtime.passing_through import never_made, no, refused

globals().update(lazy.submodules(__name__, ("autograd", "device_mesh", "fsdp", "rpc", "tensor")))

__all__ = [
    "ProcessGroup", "Work", "barrier", "destroy_process_group", "get_rank", "get_world_size", "init_process_group", "is_available",
    "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available",
]  # fmt: skip

_INSTEAD = (
    "it has no process groups. Start the program as one process (not by torchrun or mp.spawn) without DistributedDataParallel; one process uses all "
    "of JAX's devices: see jax.sharding, and jax.distributed for several machines"
)
ProcessGroup, Work = never_made("torch.distributed.ProcessGroup", _INSTEAD), never_made("torch.distributed.Work", _INSTEAD)
is_available = is_initialized = is_gloo_available = is_mpi_available = is_nccl_available = is_ucc_available = no
init_process_group = refused("torch.distributed.init_process_group", _INSTEAD)


def is_torchelastic_launched() -> bool:
    """Whether the process was started by torchrun."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def _no_group(*args: Any, **kwargs: Any) -> NoReturn:
    """ValueError, always: there is no process group."""
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


get_rank = get_world_size = barrier = destroy_process_group = _no_group
