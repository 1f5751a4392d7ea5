"""`torch.fx`: programs recorded as graphs, which can be read, changed and written as Python again.

`symbolic_trace` calls a module with proxies and records what it does to them as a `Graph`; `GraphModule` is a module whose `forward` is written from
one.
"""

from __future__ import annotations

from torchgrad_jax.fx import _compatibility as _compatibility
from torchgrad_jax.fx import _pytree as _pytree
from torchgrad_jax.fx import _symbolic_trace as _symbolic_trace
from torchgrad_jax.fx import (
    experimental,
    graph,
    graph_module,
    immutable_collections,
    interpreter,
    node,
    operator_schemas,
    passes,
    proxy,
    subgraph_rewriter,
    traceback,
)
from torchgrad_jax.fx.concrete import PH as PH
from torchgrad_jax.fx.graph import CodeGen, Graph
from torchgrad_jax.fx.graph_module import GraphModule
from torchgrad_jax.fx.interpreter import Interpreter, Transformer
from torchgrad_jax.fx.node import Node, has_side_effect, map_arg
from torchgrad_jax.fx.patching import wrap
from torchgrad_jax.fx.proxy import Proxy
from torchgrad_jax.fx.subgraph_rewriter import replace_pattern
from torchgrad_jax.fx.tracing import ProxyableClassMeta, Tracer, symbolic_trace

__all__ = [
    "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "ProxyableClassMeta", "Tracer", "Transformer", "experimental", "graph",
    "graph_module", "has_side_effect", "immutable_collections", "interpreter", "map_arg", "node", "operator_schemas", "passes", "proxy",
    "replace_pattern", "subgraph_rewriter", "symbolic_trace", "traceback", "wrap",
]  # fmt: skip
