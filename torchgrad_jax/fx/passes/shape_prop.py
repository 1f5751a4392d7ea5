"""`torch.fx.passes.shape_prop`: what each node of a graph gives, found by running it."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.fx.interpreter import Interpreter
from torchgrad_jax.fx.naming import found_in_torch
from torchgrad_jax.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its content."""

    shape: Size
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """What is known of a tensor."""
    layout = None
    if include_contiguity:
        formats = [found_in_torch(f"torch.{name}") for name in ("contiguous_format", "channels_last", "channels_last_3d")]
        layout = next((f for f in formats if result.is_contiguous(memory_format=f)), None)
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), layout, False, {})


class ShapeProp(Interpreter):
    """Runs a graph, and notes in the `meta` of each node the type of what it gives and, for tensors, ``tensor_meta``: see `TensorMetadata`.

    Example::

        from torch.fx.passes.shape_prop import ShapeProp

        traced = torch.fx.symbolic_trace(model)
        ShapeProp(traced).propagate(x)
        print([node.meta["tensor_meta"].shape for node in traced.graph.nodes])
    """

    def __init__(self, gm: Any, fake_mode: Any = None) -> None:
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        """The result of a node, of which it makes a note. RuntimeError that says which node it was, where it cannot be computed."""
        try:
            result = super().run_node(n)
        except Exception as error:
            raise RuntimeError(f"ShapeProp error for: node={n.format_node()} with meta={n.meta}") from error
        tensors = [False]

        def extract(value: Any) -> Any:
            if isinstance(value, Tensor):
                tensors[0] = True
                return _extract_tensor_metadata(value)
            return value

        found = map_aggregate(result, extract)
        if tensors[0]:
            n.meta["tensor_meta"] = found
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on the arguments, and give the result."""
        return super().run(*args)
