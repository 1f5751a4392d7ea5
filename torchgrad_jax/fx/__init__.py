"""`torch.fx`: there are no FX graphs. What marks functions for them gives the function back."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime.passing_through import refused

__all__ = ["symbolic_trace", "wrap"]

symbolic_trace = refused("torch.fx.symbolic_trace", "there are no FX graphs; torchgrad_jax.to_jax(module) gives a function that jax.make_jaxpr shows")


def wrap(fn_or_name: Any) -> Any:
    """The function, or name, itself."""
    return fn_or_name
