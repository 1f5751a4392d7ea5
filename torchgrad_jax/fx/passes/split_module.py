"""`torch.fx.passes.split_module`: one graph as a graph of submodules."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from torchgrad_jax.fx.graph import Graph
from torchgrad_jax.fx.graph_module import GraphModule
from torchgrad_jax.fx.node import Node, map_arg

__all__ = ["split_module"]


class Partition:
    """What becomes of the nodes of one part: its graph, what it is given, and what others need of it."""

    def __init__(self, name: str) -> None:
        self.name, self.graph = name, Graph()
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.known: dict[Node, Node] = {}

    @property
    def submod_name(self) -> str:
        """The name of the submodule."""
        return f"submod_{self.name}"


def split_module(
    m: GraphModule,
    root_m: Any,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    **options: Any,
) -> GraphModule:
    """A module that does the same in parts. m: the traced module, root_m: what it was traced of. split_callback: the number, or name, of the part
    that a node belongs to; the submodule is called ``submod_`` and that. qualname_map: is given, for each member of the new module, its path in the
    old one. ValueError where parts need each other."""
    parts: dict[str, Partition] = {}
    part_of: dict[Node, Partition] = {}
    for node in m.graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output"):
            name = str(split_callback(node))
            part_of[node] = parts.setdefault(name, Partition(name))
            part_of[node].nodes.append(node)
    for node in m.graph.nodes:
        for used in node.all_input_nodes:
            _cross(used, part_of.get(used), part_of.get(node))
    order = _ordered(list(parts.values()), part_of)
    base: dict[str, Any] = {}
    for part in order:
        base[part.submod_name] = _made(part, m, bool(keep_original_node_name), qualname_map)
    return GraphModule({**_own_members(m), **base}, _outer(m.graph, order, part_of))


def _cross(used: Node, giver: Partition | None, taker: Partition | None) -> None:
    """Note that a result goes from one part to another."""
    if giver is not taker:
        if giver is not None:
            giver.outputs[used] = None
        if taker is not None:
            taker.inputs[used] = None


def _ordered(parts: list[Partition], part_of: dict[Node, Partition]) -> list[Partition]:
    """The parts, each after those that it needs something of."""
    needs = {part: {part_of[n] for n in part.inputs if n in part_of} for part in parts}
    order: list[Partition] = []
    while len(order) < len(parts):
        ready = next((p for p in parts if p not in order and needs[p] <= set(order)), None)
        if ready is None:
            raise ValueError("cycle exists between partitions!")
        order.append(ready)
    return order


def _made(part: Partition, m: GraphModule, keep_names: bool, qualname_map: dict[str, str] | None) -> GraphModule:
    members: dict[str, Any] = {}
    for node in part.inputs:
        part.known[node] = part.graph.placeholder(node.name, type_expr=node.type)
        part.known[node].meta = node.meta.copy()
    for node in part.nodes:
        target = node.target
        if node.op == "call_module":
            target = str(node.target).replace(".", "_")
            members[target] = m.get_submodule(str(node.target))
            if qualname_map is not None:
                qualname_map[f"{part.submod_name}.{target}"] = str(node.target)
        args, kwargs = (map_arg(a, lambda n: part.known[n]) for a in (node.args, node.kwargs))
        name = node.name if keep_names else None
        part.known[node] = part.graph.create_node(node.op, target, args, kwargs, name, node.type)
        part.known[node].meta = node.meta.copy()
    results = tuple(part.known[n] for n in part.outputs)
    part.graph.output(results[0] if len(results) == 1 else results)
    return GraphModule(members, part.graph)


def _own_members(m: GraphModule) -> dict[str, Any]:
    """What the outer graph fetches."""
    found = {}
    for node in m.graph.nodes:
        if node.op == "get_attr":
            value: Any = m
            for name in str(node.target).split("."):
                value = getattr(value, name)
            found[str(node.target)] = value
    return found


def _outer(graph: Graph, order: list[Partition], part_of: dict[Node, Partition]) -> Graph:
    """The graph that calls the parts."""
    made = Graph()
    known: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            known[node] = made.node_copy(node)
    for part in order:
        call = made.call_module(part.submod_name, tuple(known[n] for n in part.inputs))
        if len(part.outputs) == 1:
            known[next(iter(part.outputs))] = call
            continue
        for i, node in enumerate(part.outputs):
            known[node] = made.call_function(operator.getitem, (call, i))
    output = graph.output_node()
    made.output(map_arg(output.args[0], lambda n: known[n]), output.type)
    return made
