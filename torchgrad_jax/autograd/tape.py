"""Tape: a whole backward pass as one operation.

A training loop builds the same graph at every turn. From its second sighting on, the pass over it is recorded as a single operation
whose operands are what the nodes saved: finding that the graph is the same costs about a quarter of walking it through the engine
(1.2 against 4.5 us a node on a 2.5 GHz core). Hooks and the user's own Functions are Python that must run, so a graph with either is
walked node by node; so is a pass that is itself differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.fields import NodeFields, OpNodeFields
from torchgrad_jax.core.node import AccumulateGrad, Edge, Node, Placed, Saved
from torchgrad_jax.core.op_node import OpNode
from torchgrad_jax.declaration.fields import PlanFields
from torchgrad_jax.runtime import keeping, modes
from torchgrad_jax.runtime.composite import Composite, ScratchRecorder
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.recorder import Recorder, record
from torchgrad_jax.runtime.value import Value

MAX_TAPES = 1024
# A longer pass would be a program that takes too long to compile.
MAX_NODES = 2000
_SEEN_ONCE: Any = object()
_tapes: dict[Any, Any] = {}


class Tape(Composite):
    """The operations of one backward pass. Operands: what the nodes saved, in the fingerprint's order. Results: the gradients in `targets`, in the
    order in which the pass reaches them. runs: the nodes that the pass runs, by their index and in their order. ran: how many of them before each
    target."""

    __slots__ = ("targets", "runs", "ran")

    def __init__(
        self, scratch: PassRecorder, found: list[tuple[Any, Value]], operands: Sequence[Any], index: dict[Node, int], order: list[Node],
        ran: list[int],
    ) -> None:  # fmt: skip
        super().__init__("backward", scratch, [v for _, v in found], operands, scratch.number_places)
        self.targets = [(index[node], nr) for (node, nr), _ in found]
        self.runs, self.ran = [index[node] for node in order], ran


class PassRecorder(ScratchRecorder):
    """Records a pass without running it. number_places: which operand of the pass each number is."""

    __slots__ = ("number_places",)

    def __init__(self, rec: Recorder) -> None:
        super().__init__(rec)
        self.number_places: list[int] = []

    def call(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """`Calculus.call` on this recorder."""
        plain = []
        for o in operands:
            if type(o) is Placed:
                self.number_places.append(o.place)
                o = o.number
            plain.append(o)
        return record(self, bound, tuple(plain))


class Fingerprint:
    """What a graph is, apart from the values in it: `key`. `operands` are the values; `index` numbers the nodes."""

    __slots__ = ("key", "operands", "index")

    def __init__(self, key: tuple[Any, ...], operands: list[Any], index: dict[Node, int]) -> None:
        self.key, self.operands, self.index = key, operands, index


def fingerprint(roots: Sequence[Edge], grads: Sequence[Value], captures: Sequence[Edge] | None, accumulate: bool) -> Fingerprint | None:
    """The Fingerprint of the graph that can be reached; None where Python code of the user's must run, or something is wrong with the
    graph, which the engine then says at the right node; in anomaly mode, which looks at each."""
    if modes.anomaly:
        return None
    operands: list[Any] = []
    place: dict[Value, int] = {}
    index: dict[Node, int] = {}
    parts: list[Any] = [accumulate]
    stack: list[Any] = []
    node: NodeFields
    for (node, nr), grad in zip(roots, grads, strict=True):
        i = _numbered(node, index, parts, stack)
        parts += (i, nr, _place(place, operands, grad), grad.aval)  # which nothing else tells where the graph is a leaf
    while stack:
        node = stack.pop()
        if node.hooks is not None:
            return None
        if isinstance(node, OpNodeFields):
            op: OpNodeFields = node
            if op.saved is None:
                return None
            parts.append(op.plan)
            saved: Any = op.saved
        else:
            described = node.describe()  # type: ignore[attr-defined]
            if described is None:
                return None
            parts += described[0]
            saved = described[1]
        for v in saved:
            if type(v) is Value:
                value: Value = v
                if value.counter is not None and value.counter.version != value.version:
                    return None
                i = place.get(v)
                if i is None:
                    place[v] = i = len(operands)
                    operands.append(v)
                parts.append(i)
            elif isinstance(v, Saved):
                return None
            else:
                operands.append(v)
                parts.append(type(v))
        for target, nr in node.next:
            parts.append(_numbered(target, index, parts, stack))
            if nr:
                parts.append(-nr)
        if len(index) > MAX_NODES:
            return None
    if captures is not None:
        for node, nr in captures:
            if node not in index:
                return None
            parts += (index[node], nr, "captured")
    return Fingerprint(tuple(parts), operands, index)


def _numbered(node: Any, index: dict[Node, int], parts: list[Any], stack: list[Any]) -> int:
    """The number of a node. One that is new goes on the stack, or among the parts where it is a leaf: nothing else tells which of several is."""
    i = index.get(node)
    if i is None:
        index[node] = i = len(index)
        if type(node) is AccumulateGrad:
            parts.append(AccumulateGrad)
        else:
            stack.append(node)
    return i


def release(nodes: list[Any]) -> None:
    """Let nodes go of what they have saved."""
    for node in nodes:
        if isinstance(node, OpNodeFields):
            op: OpNodeFields = node
            plan: PlanFields = op.plan
            if type(op.saved) is tuple:
                if plan.frees:
                    op.saved = None
                continue
        node.release()  # type: ignore[attr-defined]


def placed(print_: Fingerprint, roots: Sequence[Edge]) -> dict[Node, Any]:
    """`Calculus.placed` for a rehearsal: each node's numbers with the operands they are, in the fingerprint's order of nodes."""
    places = iter([i for i, o in enumerate(print_.operands) if type(o) is not Value])
    found: dict[Node, Any] = {}
    seen = {node for node, _ in roots}
    stack = [node for node in dict.fromkeys(node for node, _ in roots) if type(node) is not AccumulateGrad]
    while stack:
        node = stack.pop()
        described = (None, node.saved) if isinstance(node, OpNode) else node.describe()
        assert described is not None
        values = described[1]
        assert values is not None
        found.update(node.place([v if type(v) is Value else Placed(v, next(places)) for v in values]))
        for target, _ in node.next:
            if target not in seen:
                seen.add(target)
                if type(target) is not AccumulateGrad:
                    stack.append(target)
    return found


def _place(place: dict[Value, int], operands: list[Any], value: Value) -> int:
    i = place.get(value)
    if i is None:
        place[value] = i = len(operands)
        operands.append(value)
    return i


def find(print_: Fingerprint, at_once: bool) -> Any:
    """The Tape of a graph that was seen before; None at its first sighting, True at its second, when a Tape is to be made, or `at_once`: where a
    loop's length changes each one will come back, and making its Tape then costs as much as the first sighting."""
    found = _tapes.get(print_.key)
    if found is None:
        if len(_tapes) >= MAX_TAPES:  # graphs that never come back must not pile up
            _tapes.clear()
        _tapes[print_.key] = _SEEN_ONCE
    return True if found is _SEEN_ONCE or (found is None and at_once) else found


def _forget(used: set[Signature]) -> None:
    """Forget the Tapes that no program which is kept is made of, and the graphs that were seen once."""
    bops = {sig.bop for sig in used}
    for key, tape in list(_tapes.items()):
        if tape not in bops:
            _tapes.pop(key, None)


keeping.after_steps.append(_forget)


def keep(print_: Fingerprint, tape: Tape) -> None:
    """Remember the Tape of a graph."""
    _tapes[print_.key] = tape
