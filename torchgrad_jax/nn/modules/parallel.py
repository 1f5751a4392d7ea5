"""Data parallelism under its older name."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.nn.modules.module import Module

__all__ = ["DataParallel"]


class DataParallel(Module):
    """Calls `module`, as PyTorch's does where there is no GPU.

    module: what is called; parameters are under `module.` in a state_dict. device_ids, output_device: the GPUs to split over.

    NotImplementedError where several are named: one program over several devices is XLA's to make, from arrays that are laid out over them.
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise NotImplementedError(
                f"DataParallel over the devices {list(device_ids)} is not there: pass device_ids=None, and lay out the batch over the devices with "
                "jax.sharding, from which XLA makes one program for all of them"
            )
        self.module, self.dim = module, dim
        self.device_ids: list[Any] = list(device_ids or ())
        self.output_device = output_device

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module returns."""
        return self.module(*inputs, **kwargs)
