"""Graphs of either library as text, so that they can be compared."""

from __future__ import annotations

from typing import Any


def graph_of(result: Any, **leaves: Any) -> str:
    """The graph behind `result` (a tensor of either library, or a sequence of them) in one line.

    A node is its name and, in brackets, its edges: ``MulBackward0(x, AddBackward0(y, -))``. A leaf is its name in `leaves`; ``-`` is an edge
    that leads nowhere, ``:1`` the number of the output that an edge belongs to. A node met again is ``@`` and the number of its first visit.
    """
    return _Walk(leaves).text(result)


class _Walk:
    def __init__(self, leaves: dict[str, Any]) -> None:
        self.leaves = leaves
        self.visits: dict[Any, int] = {}

    def text(self, result: Any) -> str:
        if isinstance(result, (tuple, list)):
            return "[" + ", ".join(map(self.text, result)) + "]"
        if not hasattr(result, "requires_grad"):
            return type(result).__name__
        if result.grad_fn is None:
            return self.leaf(result) if result.requires_grad else "-"
        return self.edge(result.grad_fn, result.output_nr)

    def edge(self, node: Any, output: int) -> str:
        if node is None:
            return "-"
        if hasattr(node, "variable"):
            return self.leaf(node.variable)
        number = f":{output}" if output else ""
        if node in self.visits:
            return f"@{self.visits[node]}{number}"
        self.visits[node] = len(self.visits)
        assert type(node).__name__ == node.name().rpartition("::")[2]
        return f"{node.name()}({', '.join(self.edge(*e) for e in node.next_functions)}){number}"

    def leaf(self, variable: Any) -> str:
        return next((name for name, leaf in self.leaves.items() if leaf is variable), "a leaf")


def sequence_of(tensor: Any) -> list[str]:
    """The names of the nodes behind a tensor in the order in which they were made, which is the order of their sequence numbers."""
    found: dict[Any, int] = {}
    todo = [tensor.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in found and not hasattr(node, "variable"):
            found[node] = node._sequence_nr()
            todo.extend(n for n, _ in node.next_functions)
    return [f"{node.name()}" for node in sorted(found, key=found.__getitem__)]
