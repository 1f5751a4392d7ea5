"""A picture as text: Graphviz's, and indented."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchgrad_jax.viz.reading import Edge, Node
from torchgrad_jax.viz.svg import lines_of, short_line

_SHAPES = {
    "operation": "box",
    "leaf": 'box, style="rounded,filled", fillcolor="#ddf4ff"',
    "output": 'box, style=filled, fillcolor="#dafbe1"',
    "folded": "box, style=dashed",
}


def dot_of(nodes: Sequence[Node], edges: Sequence[Edge], note: str) -> str:
    """The text for Graphviz's `dot`. Arrows lead as the forward pass went."""
    lines = ["digraph autograd {", '  node [fontname="monospace", fontsize=10];', '  edge [fontname="monospace", fontsize=9];']
    for node in nodes:
        label = "\\n".join(_quoted(line) for line in lines_of(node))
        lines.append(f'  n{node.number} [label="{label}", shape={_SHAPES[node.kind]}];')
    several = {edge.target for edge in edges if edge.output} | {node.number for node in nodes if len(node.outputs) > 1}
    for edge in edges:
        label = f' [label="{edge.output}"]' if edge.target in several else ""
        lines.append(f"  n{edge.target} -> n{edge.source}{label};")
    if note:
        lines.append(f'  label="{_quoted(note)}";')
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")


def indented(nodes: Sequence[Node], edges: Sequence[Edge], note: str) -> str:
    """From the outputs to the leaves. What has one input is followed by it; several are indented, each under its number. What several others lead
    to is shown the first time, and named by its number after that."""
    inputs: dict[int, list[Edge]] = {node.number: [] for node in nodes}
    for edge in edges:
        inputs[edge.source].append(edge)
    reached = {edge.target for edge in edges}
    shared = {n for n in reached if sum(edge.target == n for edge in edges) > 1} if len(edges) < 2000 else reached
    lines: list[str] = []
    done: set[int] = set()
    stack = [(node.number, "", "", "") for node in reversed(nodes) if node.number not in reached]
    while stack:
        number, indent, place, output = stack.pop()
        node = nodes[number]
        again = number in done
        done.add(number)
        mark = f"  #{number}" if number in shared else ""
        if place:
            indent += "  "
        lines.append(f"{indent}{place}{output}{node.name}{mark}" + ("  (above)" if again else _about(node)))
        if again:
            continue
        indent += " " * len(place)
        lines += [f"{indent}    {line}" for line in _details(node)]
        mine = sorted(inputs[number], key=lambda edge: edge.input)
        for edge in reversed(mine):
            numbered = f"output {edge.output} of " if edge.output or len(nodes[edge.target].outputs) > 1 else ""
            stack.append((edge.target, indent, f"{edge.input}: " if len(mine) > 1 else "", numbered))
    return "\n".join([*lines, *([note] if note else [])])


def _about(node: Node) -> str:
    outputs = "  " + ", ".join(node.outputs) if node.outputs else ""
    return outputs + (f"  [{short_line(node)}]" if node.line else "")


def _details(node: Node) -> Iterator[str]:
    if node.saved:
        yield "saves " + ", ".join(map(str, node.saved))
    yield from node.hooks
