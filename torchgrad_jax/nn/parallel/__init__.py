"""`torch.nn.parallel`: one process uses all of JAX's devices, so models are not wrapped."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.modules.parallel import DataParallel

__all__ = ["DataParallel", "DistributedDataParallel"]


class DistributedDataParallel(Module):
    """ValueError, always, as in PyTorch where there is no process group; there are none here."""

    def __init__(self, module: Module, *args: Any, **kwargs: Any) -> None:
        raise ValueError(
            "Default process group has not been initialized, please make sure to call init_process_group. torchgrad_jax has no process groups: run "
            "the program as one process, without wrapping the model"
        )
