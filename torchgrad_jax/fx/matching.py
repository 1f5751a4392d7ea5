"""Where in a graph something looks like a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchgrad_jax.fx.graph import Graph
from torchgrad_jax.fx.node import Node, map_arg


class Found:
    """A part of a graph that looks like a pattern. anchor: the pattern's node that gives its (first) result. nodes_map: nodes of the pattern to nodes
    of the graph. returning: the graph's nodes that give the results."""

    def __init__(self, anchor: Node, nodes_map: dict[Node, Any], returning: list[Node]) -> None:
        self.anchor, self.nodes_map, self.returning_nodes = anchor, nodes_map, returning
        self.anchors = [anchor]
        self.placeholder_nodes = [value for node, value in nodes_map.items() if node.op == "placeholder"]

    @property
    def returning(self) -> list[Node]:
        """See the class."""
        return self.returning_nodes


def matches(graph: Graph, pattern: Graph, ignore_literals: bool = False) -> list[Found]:
    """The parts of a graph that look like a pattern, in the order of the graph; none has a node in common with another."""
    results = _results(pattern)
    if not results:
        raise ValueError("the pattern has no result")
    taken: set[Node] = set()
    found: list[Found] = []
    for node in graph.nodes:
        if node in taken or node.op in ("placeholder", "output"):
            continue
        match = _match(graph, pattern, results, node, ignore_literals)
        if match is None:
            continue
        inner = {value for key, value in match.nodes_map.items() if key.op != "placeholder"}
        if inner & taken:
            continue
        taken |= inner
        found.append(match)
    return found


def _results(pattern: Graph) -> list[Node]:
    found: list[Node] = []
    output = pattern.output_node()
    map_arg(output.args, lambda n: found.append(n) or n)  # type: ignore[func-returns-value]
    return found


def _match(graph: Graph, pattern: Graph, results: list[Node], node: Node, ignore_literals: bool) -> Found | None:
    """The part of which `node` gives the first result."""
    matching = _Matching(ignore_literals)
    if not matching.same(results[0], node):
        return None
    for other in results[1:]:
        if other in matching.known:
            continue
        tried = next((m for n in graph.nodes if (m := matching.tried(other, n)) is not None), None)
        if tried is None:
            return None
        matching = tried
    if not _is_closed(matching.known, results):
        return None
    return Found(results[0], matching.known, [matching.known[n] for n in results])


def _is_closed(known: dict[Node, Any], results: list[Node]) -> bool:
    """Whether what inner nodes give is used within the part alone, and the part can be one step."""
    inner = {value for node, value in known.items() if node.op != "placeholder" and isinstance(value, Node)}
    returned = {known[n] for n in results}
    if not all(user in inner for value in inner - returned for user in value.users):
        return False
    # What it is given must not be made of what it gives.
    waiting = [value for node, value in known.items() if node.op == "placeholder" and isinstance(value, Node)] if len(returned) > 1 else []
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node in inner:
            return False
        new = [used for used in node.all_input_nodes if used not in seen]
        seen.update(new)
        waiting += new
    return True


class _Matching:
    """One attempt. known: nodes of the pattern to what they stand for in the graph."""

    def __init__(self, ignore_literals: bool, known: dict[Node, Any] | None = None) -> None:
        self.ignore_literals, self.known = ignore_literals, {} if known is None else known

    def tried(self, wanted: Node, node: Node) -> _Matching | None:
        """This one with one node more; None where that does not look like it."""
        further = _Matching(self.ignore_literals, dict(self.known))
        return further if further.same(wanted, node) else None

    def same(self, wanted: Any, got: Any) -> bool:
        """Whether an argument of the graph looks like one of the pattern."""
        if isinstance(wanted, Node):
            return self._same_node(wanted, got)
        if isinstance(got, Node):
            return False
        if isinstance(wanted, (list, tuple)) and isinstance(got, (list, tuple)):
            return len(wanted) == len(got) and all(map(self.same, wanted, got))
        if isinstance(wanted, dict) and isinstance(got, dict):
            return wanted.keys() == got.keys() and all(self.same(wanted[key], got[key]) for key in wanted)
        if isinstance(wanted, slice) and isinstance(got, slice):
            return all(self.same(getattr(wanted, part), getattr(got, part)) for part in ("start", "stop", "step"))
        return self.ignore_literals or (type(wanted) is type(got) and wanted == got)

    def _same_node(self, wanted: Node, got: Any) -> bool:
        if wanted in self.known:
            return self.known[wanted] is got
        if isinstance(got, Node) and any(got is other for other in self.known.values()):
            return False  # one node does not stand for two
        if wanted.op == "placeholder":
            self.known[wanted] = got
            return True
        if not isinstance(got, Node) or wanted.op != got.op or not _same_target(wanted, got):
            return False
        self.known[wanted] = got
        if wanted.op == "get_attr":
            return True
        pair = _arguments(wanted), _arguments(got)
        return self.same(pair[0][0], pair[1][0]) and self.same(pair[0][1], pair[1][1])


def _arguments(node: Node) -> tuple[Any, Any]:
    return node.args, node.kwargs


def _same_target(wanted: Node, got: Node) -> bool:
    if wanted.op == "call_module":
        kinds = [type(module) for n in (wanted, got) for module in _module_of(n)]
        return len(kinds) == 2 and kinds[0] is kinds[1] or wanted.target == got.target
    return wanted.op == "get_attr" or wanted.target == got.target


def _module_of(node: Node) -> Iterator[Any]:
    owner = node.graph.owning_module
    if owner is not None:
        yield owner.get_submodule(str(node.target))
