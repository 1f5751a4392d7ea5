"""`viz.graph`: the graph behind tensors, or of what a module, a Function or any function computes, as a picture."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchgrad_jax.autograd import anomaly_mode
from torchgrad_jax.autograd.function import Function
from torchgrad_jax.autograd.graph import GradientEdge
from torchgrad_jax.core import node as core
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.runtime.recorder import anomaly_of, per_thread
from torchgrad_jax.viz import reading, texts
from torchgrad_jax.viz.svg import svg_of


class Graph:
    """A picture of a graph: text and numbers alone. It keeps no tensor and no node alive, and later changes of the graph do not change it.

    nodes, edges: what is shown (`viz.Node`, `viz.Edge`). total: how many nodes the graph has; those beyond the limit are folded into one box. In a
    notebook it shows itself as SVG; ``print`` gives indented text.
    """

    def __init__(self, nodes: Sequence[reading.Node], edges: Sequence[reading.Edge], total: int) -> None:
        self.nodes, self.edges, self.total = list(nodes), list(edges), total

    @property
    def _note(self) -> str:
        shown = sum(node.kind in ("operation", "leaf") for node in self.nodes)
        if shown < self.total:
            return f"{shown} of {self.total} nodes are shown, those nearest to the outputs; see max_nodes"
        return "" if self.total else "no graph: nothing here requires a gradient"

    def svg(self) -> str:
        """An ``<svg>`` element, which is a file too. Leaves are at the top; tool tips have what does not fit into the boxes."""
        return svg_of(self.nodes, self.edges, self._note)

    def dot(self) -> str:
        """Graphviz's text."""
        return texts.dot_of(self.nodes, self.edges, self._note)

    def text(self) -> str:
        """Indented text, from the outputs to the leaves."""
        return texts.indented(self.nodes, self.edges, self._note)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file: SVG, Graphviz's text or indented text, by its suffix ``.svg``, ``.dot`` or ``.gv``, ``.txt``. ValueError for another one."""
        writers = {".svg": self.svg, ".dot": self.dot, ".gv": self.dot, ".txt": self.text}
        suffix = os.path.splitext(os.fspath(path))[1].lower()
        if suffix not in writers:
            raise ValueError(f"a graph is saved as {', '.join(writers)}, not as {suffix or 'a file without a suffix'}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(writers[suffix]())

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<viz.Graph of {self.total} nodes>"


def graph(what: Any, *args: Any, params: Mapping[str, Tensor] | None = None, max_nodes: int = 300, lines: bool = False, **kwargs: Any) -> Graph:
    """The picture of a graph.

    what: a tensor, a node (`grad_fn`), a GradientEdge, or a sequence or dict of such; or a module, a class of `torch.autograd.Function` or any
    function, which is called once with `args` and `kwargs`: it does to its buffers and to the random numbers what a call does. Tensors among its
    results are the outputs.

    params: names of leaves, such as ``dict(model.named_parameters())``; a module's own are known. max_nodes: so many nodes of the graph are shown,
    those nearest to the outputs. lines: record by which line of the user's each node is made while `what` is called; see `record_lines`.

    Nothing is computed, unpacked or changed. TypeError where `what` is none of these, or a tensor and there are `args`; ValueError where `max_nodes`
    is less than 1, or `lines` is asked for of what is there already.

        >>> x = torch.ones(2, requires_grad=True)
        >>> print(viz.graph((x * x).sum(), params={"x": x}))
        output  float32[]
        SumBackward0  float32[]
        MulBackward0  float32[2]
            saves self float32[2], other float32[2]
          0: AccumulateGrad x  #3  float32[2]
          1: AccumulateGrad x  #3  (above)
    """
    if max_nodes < 1:
        raise ValueError(f"max_nodes must be at least 1, not {max_nodes}")
    names = dict(params or {})
    if isinstance(what, type) and issubclass(what, Function):
        what, called = what.apply, True
    else:
        called = callable(what) and not isinstance(what, (Tensor, core.Node, GradientEdge))
    if called:
        function: Any = what
        if isinstance(what, Module):
            names = dict(what.named_parameters()) | names
        with record_lines() if lines else contextlib.nullcontext():
            found = function(*args, **kwargs)
    elif args or kwargs:
        raise TypeError(f"only what is called takes arguments, and {type(what).__name__} is not: graph(tensor), or graph(module, *inputs)")
    elif lines:
        raise ValueError("lines are recorded while a graph is made: put what makes it inside `with viz.record_lines():`")
    else:
        found = what
    for name, t in names.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"params[{name!r}] must be a Tensor, not {type(t).__name__}")
    roots = list(_roots(found, "output"))
    if not roots and not called:
        raise TypeError(f"a graph is that of tensors, nodes, modules or functions, not of {type(what).__name__}")
    read = reading.Reading(roots, names, max_nodes)
    return Graph(read.nodes, read.edges, read.total)


def _roots(found: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The tensors and nodes in nested sequences and dicts, named by where they are."""
    if isinstance(found, (Tensor, core.Node, GradientEdge)):
        yield name, found
    elif isinstance(found, Mapping):
        for key, value in found.items():
            yield from _roots(value, f"{name}[{key!r}]")
    elif isinstance(found, (list, tuple)):
        for i, value in enumerate(found):
            yield from _roots(value, f"{name}[{i}]" if len(found) > 1 else name)


@contextlib.contextmanager
def record_lines() -> Iterator[None]:
    """Inside the block, each node notes by which line of the user's it is made, where anomaly mode looks for it too: in its `metadata`. In all
    threads, as anomaly mode, which it is without its look at values and its warning; where that is on already nothing changes. Outside of such a
    block nothing is recorded, and nothing is paid."""
    if anomaly_of(per_thread.recorder):
        yield
        return
    checks = anomaly_mode.is_anomaly_check_nan_enabled()
    anomaly_mode.set_anomaly_enabled(True, check_nan=False)
    try:
        yield
    finally:
        anomaly_mode.set_anomaly_enabled(False, checks)
