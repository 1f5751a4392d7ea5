"""`torch.cuda.amp.autocast_mode`."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.autograd import autocast_mode
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(autocast_mode.autocast):
    """`torch.amp.autocast("cuda", ...)`, with a warning."""

    def __init__(self, enabled: bool = True, dtype: Any = dtypes.float16, cache_enabled: bool = True) -> None:
        warn_user(
            "`torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` instead.", FutureWarning
        )  # fmt: skip
        super().__init__("cuda", dtype, enabled, cache_enabled)


def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    """`torch.amp.custom_fwd(..., device_type="cuda")`, with a warning."""
    _warn("custom_fwd")
    return autocast_mode.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """`torch.amp.custom_bwd(..., device_type="cuda")`, with a warning."""
    _warn("custom_bwd")
    return autocast_mode.custom_bwd(bwd, device_type="cuda")


def _warn(name: str) -> None:
    warn_user(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}(args..., device_type='cuda')` instead.", FutureWarning
    )  # fmt: skip
