"""`torch.fx.passes.graph_manipulation`: targets replaced, and sizes of what nodes give."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchgrad_jax.fx.graph import Graph
from torchgrad_jax.fx.graph_module import GraphModule
from torchgrad_jax.fx.node import Node, Target, map_arg
from torchgrad_jax.fx.passes.shape_prop import ShapeProp, TensorMetadata

__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]


class size_bytes(NamedTuple):  # noqa: N801 - PyTorch's name
    """Bytes of what a node gives, and of that with the parameters of the module that it calls."""

    output_size: int
    total_size: int


def replace_target_nodes_with(fx_module: GraphModule, old_op: str, old_target: Target, new_op: str, new_target: Target) -> None:
    """Let nodes of a kind and target be of another kind and target."""
    made = Graph()
    known: dict[Node, Node] = {}
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            args, kwargs = map_arg(node.args, lambda n: known[n]), map_arg(node.kwargs, lambda n: known[n])
            known[node] = made.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            known[node] = made.node_copy(node, lambda n: known[n])
    fx_module.graph = made


def get_tensor_meta(node: Node) -> Any:
    """What `ShapeProp` noted of the tensor that a node gives. RuntimeError where it did not."""
    if "tensor_meta" not in node.meta:
        raise RuntimeError(f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run.")
    return node.meta["tensor_meta"]


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Any] | None = None) -> None:
    """Note in each node, as ``size_bytes``, how large what it gives is. args: inputs, to run `ShapeProp` on before."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """How large what a node gives is."""
    total = 0
    if node.op == "call_module":
        module = fx_module.get_submodule(str(node.target))
        total = sum(p.nelement() * p.element_size() for p in (*module.parameters(), *module.buffers()))
    meta = get_tensor_meta(node)
    output = _bytes(meta) if isinstance(meta, TensorMetadata) else sum(_bytes(m) for m in meta if isinstance(m, TensorMetadata))
    return size_bytes(output, total + output)


def _bytes(meta: TensorMetadata) -> int:
    return meta.shape.numel() * meta.dtype.itemsize
