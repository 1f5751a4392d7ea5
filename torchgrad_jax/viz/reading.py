"""What a picture shows of the graph: plain data, which holds neither tensors nor nodes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchgrad_jax.autograd.function import BackwardCFunction
from torchgrad_jax.core import node as core
from torchgrad_jax.core.node import AccumulateGrad, HookList
from torchgrad_jax.core.op_node import OpNode
from torchgrad_jax.core.saved import SavedTensor
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.value import Aval, Value

# The key under which anomaly mode notes where a node was made, which is PyTorch's.
_TRACEBACK = "traceback_"
_FRAME = re.compile(r'\s*File "(.*)", line (\d+), in (.*)')


@dataclass(frozen=True)
class Saved:
    """What a node keeps for backward. name: as in `grad_fn._saved_<name>`. what: dtype and shape, or the number itself; or what became of it."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name} {self.what}"


@dataclass(frozen=True)
class Edge:
    """Gradients of output `output` of node `target` come from node `source`, of which it is input number `input`. Nodes are numbers."""

    source: int
    target: int
    output: int
    input: int


@dataclass
class Node:
    """A node of the graph, or what stands at its ends.

    kind: "operation", "leaf" (an AccumulateGrad), "output" (a tensor that was asked about), or "folded" (nodes that were left out). outputs: dtype
    and shape of each output. saved, hooks: texts of them. line: ``file:line`` of the user's that made it, in ``function``; "" where unknown.
    """

    number: int
    kind: str
    name: str
    outputs: list[str]
    saved: list[Saved] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    line: str = ""
    function: str = ""
    traceback: str = ""


def shown_aval(aval: Aval | None) -> str:
    """dtype and shape, such as ``float32[2, 3]``."""
    return "?" if aval is None else f"{str(dtypes.of(aval.dtype)).removeprefix('torch.')}{list(aval.shape)}"


class Reading:
    """The graph behind some tensors, read without changing it.

    nodes, edges: of what is shown, at most `limit` nodes of the graph, those nearest to the outputs. total: how many there are. names: of leaves.
    """

    def __init__(self, roots: Sequence[tuple[str, Tensor | core.Node | core.Edge]], names: Mapping[str, Tensor], limit: int) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self._names = {id(t): name for name, t in names.items()}
        self._numbers: dict[core.Node, int] = {}
        starts = [self._root(name, root) for name, root in roots]
        self.total = self._walk([edge for _, edge in starts if edge is not None], limit)
        self._connect(starts)

    def _root(self, name: str, root: Tensor | core.Node | core.Edge) -> tuple[int | None, core.Edge | None]:
        """The number of the box for an output, and where its gradient goes."""
        if isinstance(root, core.Node):
            return None, (root, 0)
        if not isinstance(root, Tensor):
            return None, (root[0], root[1])
        edge = root._edge() if root.requires_grad else None
        if edge is not None and edge[0].hidden:
            edge = None
        return self._add("output", name, [shown_aval(root._aval)]).number, edge

    def _add(self, kind: str, name: str, outputs: list[str]) -> Node:
        made = Node(len(self.nodes), kind, name, outputs)
        self.nodes.append(made)
        return made

    def _walk(self, starts: Sequence[core.Edge], limit: int) -> int:
        """Number the nodes that are shown, in order of their distance; returns how many there are in all."""
        seen: set[core.Node] = set()
        waiting: deque[core.Node] = deque()

        def meet(node: core.Node | None) -> None:
            if node is not None and not node.hidden and node not in seen:
                seen.add(node)
                waiting.append(node)

        for node, _ in starts:
            meet(node)
        while waiting:
            node = waiting.popleft()
            if len(self._numbers) < limit:
                self._describe(node)
            for target, _ in node.next_functions:
                meet(target)
        return len(seen)

    def _connect(self, starts: Sequence[tuple[int | None, core.Edge | None]]) -> None:
        """Edges between what is shown; those that lead to what is not end at one box."""
        folded: Node | None = None
        for node, source in list(self._numbers.items()):
            for place, (target, nr) in enumerate(node.next_functions):
                if target is None:
                    continue
                number = self._numbers.get(target)
                if number is None:
                    folded = folded or self._add("folded", f"{self.total - len(self._numbers)} more nodes", [])
                    number = folded.number
                self.edges.append(Edge(source, number, nr, place))
        for number, edge in starts:
            if number is not None and edge is not None:
                self.edges.append(Edge(number, self._numbers[edge[0]], edge[1], 0))

    def _describe(self, node: core.Node) -> None:
        leaf = isinstance(node, AccumulateGrad)
        made = self._add("leaf" if leaf else "operation", node.name().rpartition("::")[2], [shown_aval(a) for a in _outputs(node)])
        self._numbers[node] = made.number
        if isinstance(node, AccumulateGrad):
            name = self._names.get(id(node.variable), "")
            made.name = f"AccumulateGrad {name}".rstrip()
        made.saved, made.hooks = saved_by(node), hooks_of(node)
        made.line, made.function, made.traceback = _made_at(node)


def _outputs(node: core.Node) -> Sequence[Aval]:
    try:
        return node.output_avals
    except NotImplementedError:  # a node that has no operation of its own
        return ()


# ---------------------------------------------------------------------- what is saved


def saved_by(node: core.Node) -> list[Saved]:
    """What a node keeps for backward. Nothing is unpacked: hooks on saved tensors are not called."""
    if isinstance(node, OpNode):
        names: Sequence[str] = node.plan.saved_names
        kept = node.saved
    elif isinstance(node, BackwardCFunction):
        kept = node._recorded_saved
        names = [str(i) for i in range(len(kept or ()))]
    else:
        return []
    if kept is None:
        return [Saved(name, "freed") for name in names] or [Saved("saved tensors", "freed")]
    return [Saved(name, _kept(one)) for name, one in zip(names, kept, strict=True)]


def _kept(one: Any) -> str:
    if type(one) is Value:
        return shown_aval(one.aval)
    inner = getattr(one, "inner", one)  # of a dual tensor: without its tangent
    if not isinstance(inner, SavedTensor):
        return repr(one)
    if inner.freed:
        return "freed"
    if inner.unpack_hook is not None:
        return f"packed by {_named(inner.unpack_hook)}"
    return "None" if inner.value is None else shown_aval(inner.value.aval)


# ---------------------------------------------------------------------- hooks


def hooks_of(node: core.Node) -> list[str]:
    """The hooks on a node and on the tensors that it stands for, by name, in the order in which they run."""
    found: list[str] = []

    def add(kind: str, hooks: HookList | None) -> None:
        found.extend(f"{kind}: {_named(hook)}" for hook in (hooks or {}).values())

    extra = node.variable._extra if isinstance(node, AccumulateGrad) else None
    if extra is not None:
        add("tensor hook", extra.hooks)
    hooks = node.hooks
    if hooks is not None:
        several = len(_outputs(node)) > 1
        for nr, registered in hooks.tensor.items():
            if extra is None or registered is not extra.hooks:
                add(f"tensor hook of output {nr}" if several else "tensor hook", registered)
        found.extend("retain_grad" + (f" of output {nr}" if several else "") for nr in hooks.retain)
        add("pre-hook", hooks.pre)
        add("post-hook", hooks.post)
    if extra is not None:
        add("post-accumulate hook", extra.post_hooks)
    return found


def _named(hook: Callable[..., Any]) -> str:
    found = getattr(hook, "__qualname__", None) or getattr(getattr(hook, "func", None), "__qualname__", None) or type(hook).__qualname__
    return str(found).rpartition("<locals>.")[2]


# ---------------------------------------------------------------------- lines


def _made_at(node: core.Node) -> tuple[str, str, str]:
    """The user's innermost line at which a node was made, the function around it, and all that is known; "" where nothing is."""
    notes = node.__dict__.get("_metadata") or {}
    noted = notes.get(_TRACEBACK)
    if not isinstance(noted, (list, tuple)) or not all(isinstance(entry, str) for entry in noted):
        return "", "", ""
    text = "".join(noted).rstrip()
    frames = [match for match in map(_FRAME.match, text.splitlines()) if match]
    return (f"{frames[-1][1]}:{frames[-1][2]}", frames[-1][3], text) if frames else ("", "", text)
