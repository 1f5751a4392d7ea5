"""`torch.cpu.amp.autocast_mode`."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.autograd import autocast_mode
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["autocast"]


class autocast(autocast_mode.autocast):
    """`torch.amp.autocast("cpu", ...)`, with a warning."""

    def __init__(self, enabled: bool = True, dtype: Any = dtypes.bfloat16, cache_enabled: bool = True) -> None:
        warn_user(
            "`torch.cpu.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cpu', args...)` instead.", FutureWarning
        )  # fmt: skip
        super().__init__("cpu", dtype, enabled, cache_enabled)
