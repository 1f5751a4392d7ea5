"""Tape: a whole backward pass as one operation.

A training loop builds the same graph at every turn. From its second sighting on, the pass over it is recorded as a single operation
whose operands are what the nodes saved: finding that the graph is the same costs about a quarter of walking it through the engine
(1.2 against 4.5 us a node on a 2.5 GHz core). Hooks and the user's own Functions are Python that must run, so a graph with either is
walked node by node; so is a pass that is itself differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.core.node import Edge, Node, Placed, Saved
from torchgrad_jax.core.op_node import OpNode
from torchgrad_jax.core.tensor import AccumulateGrad
from torchgrad_jax.runtime import keeping
from torchgrad_jax.runtime.epoch import Epoch
from torchgrad_jax.runtime.operation import ArgSpec, Expansion, Signature
from torchgrad_jax.runtime.recorder import Recorder, Step, record
from torchgrad_jax.runtime.value import Value

MAX_TAPES = 1024
# A longer pass would be a program that takes too long to compile.
MAX_NODES = 2000
_SEEN_ONCE: Any = object()
_tapes: dict[Any, Any] = {}


class Tape:
    """The operations of one backward pass: a BoundOp. Operands: what the nodes saved, in the fingerprint's order. Results: the gradients
    in `targets`, in the order in which the pass reaches them. runs: the nodes that the pass runs, by their index and in their order.
    ran: how many of them before each target. checked: whether an operation of it has a check. nbytes: of the results of all its operations."""

    __slots__ = ("name", "device", "signatures", "differentiable", "targets", "runs", "ran", "checked", "nbytes", "_expansion", "_specs")

    def __init__(
        self, scratch: ScratchRecorder, found: list[tuple[Any, Value]], operands: Sequence[Any], index: dict[Node, int], order: list[Node],
        ran: list[int],
    ) -> None:  # fmt: skip
        self.name, self.device, self.differentiable = "backward", None, False
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}
        self.targets = [(index[node], nr) for (node, nr), _ in found]
        self.runs, self.ran = [index[node] for node in order], ran
        place = {id(o): i for i, o in enumerate(operands) if type(o) is Value}
        results = [v.slot if v.epoch is scratch.epoch else scratch.enter(v) for _, v in found]
        steps = steps_to(scratch.epoch.step)
        self.checked = any(s.signature is not None and s.signature.check is not None for s in steps)
        self.nbytes = sum([s.signature.nbytes for s in steps])
        # A check is counted where it is recorded, so a pass that holds one stays an operation of its own.
        self._specs = None if self.checked else tuple([o.aval if type(o) is Value else type(o) for o in operands])
        self._expansion = Expansion(
            steps, [place[id(v)] for v in scratch.epoch.leaves.values()], scratch.number_places, results, tuple([v.aval for _, v in found])
        )

    def expand(self, specs: tuple[ArgSpec, ...]) -> Expansion | None:
        """The operations that the pass is made of, for operands like those that it was rehearsed with."""
        return self._expansion if specs == self._specs else None

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""
        steps, operands, number_places, results, _ = self._expansion

        def backward(*arrays: Any) -> tuple[Any, ...]:
            env = {-1 - i: arrays[p] for i, p in enumerate(operands)}
            numbers = iter(number_places)
            for step in steps:
                outs = step.signature.function(*[env[a] if type(a) is int else arrays[next(numbers)] for a in step.args])
                for i, out in enumerate(outs):
                    env[step.slot + i] = out
            return tuple([env[slot] for slot in results])

        return backward

    def check(self, specs: Sequence[ArgSpec]) -> None:
        """Backward operations check nothing of their own."""


class ScratchRecorder(Recorder):
    """Records a pass without running it: every Value that it has not made itself is an input, pending or not."""

    __slots__ = ("number_places",)

    def __init__(self, rec: Recorder) -> None:
        super().__init__()
        self.device = rec.device
        self.epoch = Epoch(self, Step(None, None, (), None, 0, 0), 1 << 62)
        self.number_places: list[int] = []

    def enter(self, value: Value) -> int:
        """The input slot of a Value."""
        epoch = self.epoch
        slot = epoch.foreign.get(value)
        if slot is None:
            slot = epoch.foreign[value] = -1 - len(epoch.leaves)
            epoch.leaves[-1 - slot] = value
        return slot

    def alias(self, value: Value) -> Value:
        """See Recorder. Of what others have recorded the twin is the same input, and nothing is computed for it."""
        if value.epoch is self.epoch:
            return super().alias(value)
        twin = Value()
        twin.aval, twin.array, twin.slot, twin.epoch = value.aval, value.array, value.slot, value.epoch
        twin.counter, twin.version = None, 0
        self.epoch.foreign[twin] = self.enter(value)
        return twin

    def close(self) -> None:
        """Let go of the values of the pass that was rehearsed: recorders and their epochs refer to each other, so they would stay."""
        self.begin()

    def call(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """`Calculus.call` on this recorder."""
        plain = []
        for o in operands:
            if type(o) is Placed:
                self.number_places.append(o.place)
                o = o.number
            plain.append(o)
        return record(self, bound, tuple(plain))


def steps_to(step: Step | None) -> list[Step]:
    """The operations that end at `step`, first to last."""
    found = []
    while step is not None and step.signature is not None:
        found.append(step)
        step = step.parent
    return found[::-1]


class Fingerprint:
    """What a graph is, apart from the values in it: `key`. `operands` are the values; `index` numbers the nodes."""

    __slots__ = ("key", "operands", "index")

    def __init__(self, key: tuple[Any, ...], operands: list[Any], index: dict[Node, int]) -> None:
        self.key, self.operands, self.index = key, operands, index


def fingerprint(roots: Sequence[Edge], grads: Sequence[Value], captures: Sequence[Edge] | None, accumulate: bool) -> Fingerprint | None:
    """The Fingerprint of the graph that can be reached; None where Python code of the user's must run, or something is wrong with the
    graph, which the engine then says at the right node."""
    operands: list[Any] = []
    place: dict[Value, int] = {}
    index: dict[Node, int] = {}
    parts: list[Any] = [accumulate]
    stack: list[Node] = []
    for (node, nr), grad in zip(roots, grads, strict=True):
        if node not in index:
            index[node] = len(index)
            if type(node) is not AccumulateGrad:
                stack.append(node)
        parts += (index[node], nr, _place(place, operands, grad))
    while stack:
        node = stack.pop()
        if node.hooks is not None:
            return None
        if isinstance(node, OpNode):
            if node.saved is None:
                return None
            parts.append(node.plan)
            saved = node.saved
        else:
            described = node.describe()
            if described is None:
                return None
            parts += described[0]
            saved = described[1]
        for v in saved:
            if type(v) is Value:
                counter = v.counter
                if counter is not None and counter.version != v.version:
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
            i = index.get(target)
            if i is None:
                index[target] = i = len(index)
                if type(target) is not AccumulateGrad:
                    stack.append(target)
            parts.append(i)
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
