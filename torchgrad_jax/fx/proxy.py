"""`torch.fx.proxy`: names for annotations."""

from __future__ import annotations

from torchgrad_jax.fx.node import INSTEAD
from torchgrad_jax.runtime.passing_through import never_made

__all__ = ["Proxy"]

Proxy = never_made("torch.fx.Proxy", INSTEAD)
