"""`torch.cuda.amp`: the older names of `torch.amp` for GPUs."""

from __future__ import annotations

import warnings
from typing import Any

from torchgrad_jax.autograd import mixed_precision

__all__ = ["GradScaler", "autocast"]


class autocast(mixed_precision.autocast):
    """`torch.amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        warnings.warn(_deprecated("autocast"), FutureWarning, stacklevel=2)
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(mixed_precision.GradScaler):
    """`torch.amp.GradScaler("cuda", ...)`."""

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True
    ) -> None:
        warnings.warn(_deprecated("GradScaler"), FutureWarning, stacklevel=2)
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def _deprecated(name: str) -> str:
    return f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('cuda', args...)` instead."
