"""`torch.distributed`: there is none of PyTorch's process groups. One process uses all of JAX's devices."""

from __future__ import annotations

import enum
import os
from typing import Any, NoReturn

from torchgrad_jax.runtime import lazy
from torchgrad_jax.runtime.passing_through import never_made, no, refused

globals().update(lazy.submodules(__name__, ("autograd", "device_mesh", "distributed_c10d", "fsdp", "rpc", "tensor")))

__all__ = [
    "Backend", "GroupMember", "ProcessGroup", "ReduceOp", "Work", "all_gather", "all_gather_coalesced", "all_gather_into_tensor",
    "all_gather_object", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast",
    "broadcast_object_list", "destroy_process_group", "gather", "gather_object", "get_backend", "get_process_group_ranks", "get_rank",
    "get_world_size", "group", "init_process_group", "irecv", "is_available", "is_gloo_available", "is_initialized", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "isend", "monitored_barrier", "new_group", "recv", "reduce",
    "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
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


get_rank = get_world_size = get_backend = get_process_group_ranks = new_group = destroy_process_group = _no_group
all_gather = all_gather_coalesced = all_gather_into_tensor = all_gather_object = all_reduce = all_reduce_coalesced = _no_group
all_to_all = all_to_all_single = broadcast = broadcast_object_list = gather = gather_object = _no_group
reduce = reduce_scatter = reduce_scatter_tensor = scatter = scatter_object_list = _no_group
_get_default_group = barrier = monitored_barrier = isend = irecv = send = recv = _no_group


# By which operation processes would combine what they have: a name, such as functions have for a default.
ReduceOp: Any = enum.Enum(
    "RedOpType", ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"], module=__name__, qualname="ReduceOp", start=0
)
ReduceOp.RedOpType = ReduceOp


class GroupMember:
    """WORLD: the group of all processes, None as long as there is none."""

    WORLD = None


group = GroupMember


class Backend(str):
    """The name of what carries messages between processes, in small letters. ValueError for what is no string."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"

    def __new__(cls, name: str) -> Any:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return name.lower()
