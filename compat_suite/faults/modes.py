"""What of a thread shows that something of ours is still under way."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.autograd import forward_ad
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import watches


def inside() -> list[Any]:
    """The recorder, the levels and modes beside those that a function may set for its caller, and the traces that have not ended."""
    rec = per_thread.recorder
    flags = [(name, repr(getattr(rec.flags, name))) for name in rec.flags.__slots__ if name != "grad_in_inference"]
    return [id(rec), rec.level, rec.rare, forward_ad._current_level, *flags, list(watches)]
