"""`torch.fx.node`: names for annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torchgrad_jax.runtime.passing_through import never_made

__all__ = ["Argument", "Node", "Target"]

INSTEAD = "there are no FX graphs; torchgrad_jax.to_jax(module) gives a function that jax.make_jaxpr shows"
Node = never_made("torch.fx.Node", INSTEAD)
# What a node calls, and what with.
Target: TypeAlias = Callable[..., Any] | str
Argument: TypeAlias = Any
