"""One node for an operation on each of a list of tensors, as PyTorch shows it: `torch._foreach_*`."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.node import Calculus, Edge, Node
from torchgrad_jax.core.op_node import OpNode
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval


class ListNode(Node):
    """The node of the results of one operation on each of several tensors. It runs the nodes that the single operations have made.

    inner: these, by the number of the output; None for a tensor that needs no gradient. edges: for each of `next`, whose it is and which of its
    edges. shown: what users find as ``_saved_*``: an argument, or the name of what the single nodes have saved as `Part`.
    """

    __slots__ = ("inner", "avals", "edges", "entries", "shown")
    skips_unneeded = True

    def __init__(self, inner: Sequence[OpNode | None], avals: tuple[Aval, ...], lists: int, shown: dict[str, Any]) -> None:
        rec = per_thread.recorder
        self.inner, self.avals, self.shown = tuple(inner), avals, shown
        self.edges: list[tuple[int, int]] = []
        self.entries: list[Edge | None] = []
        for place in range(lists):  # those of the first list come first
            for i, node in enumerate(inner):
                j = None if node is None or place not in node.edge_places else list(node.edge_places).index(place)
                self.entries.append(None if node is None or j is None else node.next[j])
                if j is not None:
                    self.edges.append((i, j))
        self.next: tuple[Edge, ...] = tuple([e for e in self.entries if e is not None])
        self.seq, self.hooks = rec.sequence, None
        rec.sequence += 1
        for i, node in enumerate(inner):
            if node is not None:
                node.face = weakref.ref(self), i

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """See Node."""
        return tuple([(None, 0) if e is None or e[0].hidden else e for e in self.entries])

    @property
    def edge_places(self) -> Sequence[int]:
        """See Node."""
        return [i for i, e in enumerate(self.entries) if e is not None]

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return self.avals

    def _single(self) -> list[OpNode]:
        return [node for node in self.inner if node is not None]

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        found: list[tuple[Any, ...] | None] = []
        for i, node in enumerate(self.inner):
            grad = grads[i] if i < len(grads) else None
            found.append(None if node is None or grad is None else node.run(calculus, [grad]))
        return tuple([None if (through := found[i]) is None else through[j] for i, j in self.edges])

    def describe(self) -> tuple[list[Any], list[Any]] | None:
        """See Node."""
        saved = [node.saved for node in self._single()]
        if any(kept is None for kept in saved):
            return None
        plans = [None if node is None else node.plan for node in self.inner]
        return [ListNode, type(self), *self.avals, *plans, *map(type, saved)], [x for kept in saved for x in kept or ()]

    def place(self, values: Sequence[Any]) -> dict[Node, Any]:
        """See Node."""
        placed: dict[Node, Any] = {}
        at = 0
        for node in self._single():
            count = len(node.saved or ())
            placed |= node.place(values[at : at + count])
            at += count
        return placed

    def content(self) -> Any:
        """See Node."""
        return [node.content() for node in self._single()]

    def put_back(self, content: Any) -> None:
        """See Node."""
        for node, kept in zip(self._single(), content, strict=True):
            node.put_back(kept)

    def release(self) -> None:
        """See Node."""
        for node in self._single():
            node.release()

    def __getattr__(self, name: str) -> Any:
        what = self.shown.get(name.removeprefix("_saved_"), self) if name.startswith("_saved_") else self
        if what is self:
            raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")
        if type(what) is not Part:
            return what
        return tuple([None if node is None else getattr(node, what.name) for node in self.inner])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(f"_saved_{name}" for name in self.shown)]


class Part:
    """Names an attribute of single nodes."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


_classes: dict[str, type[ListNode]] = {}


def joined(name: str, results: Sequence[Tensor], lists: int, shown: dict[str, Any]) -> tuple[Tensor, ...]:
    """The results of one operation on each of several tensors, as those of one node, if any has one. lists: how many lists of tensors there were."""
    inner = [t._node for t in results]
    if per_thread.recorder.level is not None or not any(inner) or not all(n is None or isinstance(n, OpNode) for n in inner):
        return tuple(results)
    kind = _classes.get(name)
    if kind is None:
        kind = _classes[name] = type(name, (ListNode,), {"__slots__": (), "__module__": "torch.autograd.graph", "__qualname__": name})
    node = kind(inner, tuple([t._aval for t in results]), lists, shown)  # type: ignore[arg-type] - asked above
    for i, t in enumerate(results):
        t._node, t._nr, t._rg = node, i, True
    return tuple(results)
