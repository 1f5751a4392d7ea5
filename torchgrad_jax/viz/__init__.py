"""Pictures of the graph: as SVG, as Graphviz's text, and as indented text. See docs/viz.md."""

from torchgrad_jax.viz.graph import Graph, graph, record_lines
from torchgrad_jax.viz.reading import Edge, Node, Saved

__all__ = ["Edge", "Graph", "Node", "Saved", "graph", "record_lines"]
