"""`torch.fx`: there are no FX graphs. What marks functions for them gives the function back, and what graphs are made of has no objects."""

from __future__ import annotations

from typing import Any

from torchgrad_jax import nn
from torchgrad_jax.fx import node, proxy
from torchgrad_jax.fx.node import INSTEAD, Node
from torchgrad_jax.fx.proxy import Proxy
from torchgrad_jax.runtime.passing_through import never_made, refused

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "node", "proxy", "replace_pattern", "symbolic_trace", "wrap",
]  # fmt: skip

symbolic_trace, replace_pattern = (refused(f"torch.fx.{name}", INSTEAD) for name in ("symbolic_trace", "replace_pattern"))
Graph, Interpreter, Tracer, Transformer = (never_made(f"torch.fx.{name}", INSTEAD) for name in ("Graph", "Interpreter", "Tracer", "Transformer"))
GraphModule = never_made("torch.fx.GraphModule", INSTEAD, nn.Module)


def wrap(fn_or_name: Any) -> Any:
    """The function, or name, itself."""
    return fn_or_name
