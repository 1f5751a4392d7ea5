"""`torch.fx`: there are no FX graphs. What marks functions for them gives the function back, and what graphs are made of has no objects."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime.passing_through import never_made, refused

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "replace_pattern", "symbolic_trace", "wrap"]

_INSTEAD = "there are no FX graphs; torchgrad_jax.to_jax(module) gives a function that jax.make_jaxpr shows"
symbolic_trace, replace_pattern = (refused(f"torch.fx.{name}", _INSTEAD) for name in ("symbolic_trace", "replace_pattern"))
Graph, GraphModule, Interpreter, Node, Proxy, Tracer, Transformer = (
    never_made(f"torch.fx.{name}", _INSTEAD) for name in ("Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer")
)


def wrap(fn_or_name: Any) -> Any:
    """The function, or name, itself."""
    return fn_or_name
