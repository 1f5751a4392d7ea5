"""A call operation by operation, to be recorded again: where a graph follows what becomes of it, or where some of it checks values.

The graph is the one that the function's own Python would have recorded, node by node, so its gradients are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchgrad_jax.core.dispatch import turn
from torchgrad_jax.core.hot import node_of
from torchgrad_jax.core.level import Interpreter
from torchgrad_jax.core.made import result, wrap
from torchgrad_jax.core.node import Node
from torchgrad_jax.core.op_node import OpNode
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.composite import Rehearsal
from torchgrad_jax.runtime.recorder import Recorder, record
from torchgrad_jax.runtime.recording.step import Step
from torchgrad_jax.runtime.value import Value


class NotingNodes(Interpreter):
    """Notes of each operation's node, by the slot of the operation's first result. Operations are recorded as ever."""

    __slots__ = ("nodes", "slots")
    notes = True

    def __init__(self) -> None:
        self.nodes: dict[int, OpNode] = {}
        self.slots: dict[Node, int] = {}

    def applied(self, outs: Any, node: Any) -> None:
        """See Interpreter."""
        first = outs[0] if type(outs) is tuple else outs
        if node is not None and node.plan in first.signature.plans.values():  # else what was written was converted first
            self.nodes[first.slot], self.slots[node] = node, first.slot


class Unfollowed(Exception):
    """The graph of a call is not one of its operations alone."""


class _Operation:
    """One operation. args: where its operands are, among what is given and what the operations before have made. edges: for each operand that has a
    graph, where it leads: a node by its number and its output, or -1 less the number of a tensor that was given; None for others. Without any of
    these it is empty, and there is no node."""

    __slots__ = ("bound", "args", "edges")

    def __init__(self, bound: Any, args: tuple[int, ...], edges: tuple[tuple[int, int] | None, ...] = ()) -> None:
        self.bound, self.args, self.edges = bound, args, edges


class Replay:
    """The operations of a call. more: what they take beside the contents of the tensors given, constants and numbers. results: where each of its
    results is, the number of its node, -1 where it has none, and which output of that it is."""

    __slots__ = ("operations", "more", "results")

    def __init__(self, scratch: Rehearsal, noted: NotingNodes, outs: Sequence[Tensor], tensors: Sequence[Tensor], given: Sequence[Value]) -> None:
        """outs: the results, tensors: what the function was given and captures, of which `given` are the contents. Unfollowed where the graph has
        nodes of others than the operations that were recorded, or an operation takes what is pending elsewhere."""
        values = [t._read() for t in outs]
        slots = [v.slot if v.epoch is scratch.epoch else scratch.enter(v) for v in values]
        reached = _reached(noted, outs)
        steps = _needed(scratch.steps, {noted.slots[node] for node in reached}, slots)
        place = {id(v): i for i, v in enumerate(given)}
        constants = [v for v in scratch.epoch.leaves.values() if id(v) not in place]
        if any([v.array is None for v in constants]):
            raise Unfollowed
        place |= {id(v): len(given) + i for i, v in enumerate(constants)}
        where = {-1 - i: place[id(v)] for i, v in scratch.epoch.leaves.items()}
        numbers = [scratch.epoch.numbers[n] for s in steps for n in s.numbers]
        self.more = (*constants, *numbers)
        next_number, filled = len(given) + len(constants), len(given) + len(self.more)
        edges = {t._edge(): -1 - i for i, t in enumerate(tensors) if t._rg}
        number_of: dict[Node, int] = {}
        self.operations: list[_Operation] = []
        for s in steps:
            args = []
            for a in s.args:
                if type(a) is int:
                    args.append(where[a])
                else:
                    args.append(next_number)
                    next_number += 1
            node = noted.nodes.get(s.slot)
            if node in reached:
                leading = dict(zip(node.plan.inputs, [_edge(e, edges, number_of) for e in node.next], strict=True))
                self.operations.append(_Operation(s.bop, tuple(args), tuple([leading.get(i) for i in range(len(args))])))
                number_of[node] = len(number_of)
            else:
                self.operations.append(_Operation(s.bop, tuple(args)))
            for i in range(len(s.signature.avals)):
                where[s.slot + i] = filled
                filled += 1
        self.results = []
        for t, slot in zip(outs, slots, strict=True):
            number, nr = _edge((t._node, t._nr), {}, number_of) if t._rg else (-1, 0)
            self.results.append((where[slot], number, nr))

    def again(self, rec: Recorder, values: Sequence[Value], tensors: Sequence[Tensor]) -> Iterator[Tensor] | None:
        """The results for tensors of these contents. None where it is to be done in full."""
        if rec.turned and turn(rec):
            return None
        env: list[Any] = [*values, *self.more]
        nodes: list[OpNode] = []

        def edge(found: tuple[int, int] | None) -> Any:
            if found is None:
                return None
            number, nr = found
            return (nodes[number], nr) if number >= 0 else tensors[-1 - number]._edge()

        for operation in self.operations:
            given = tuple([env[i] for i in operation.args])
            outs: Any = record(rec, operation.bound, given)
            if type(outs) is not tuple:
                outs = (outs,)
            env += outs
            if operation.edges:
                nodes.append(node_of(rec, outs[0].signature, tuple(map(edge, operation.edges)), given, outs))
        return iter([result(env[at], nodes[number], nr) if number >= 0 else wrap(env[at]) for at, number, nr in self.results])


def _reached(noted: NotingNodes, outs: Sequence[Tensor]) -> set[Node]:
    """The nodes, of operations that were recorded, that the results lead to."""
    reached: set[Node] = set()
    queue: list[Any] = [t._node for t in outs if t._rg]
    while queue:
        node = queue.pop()
        if node in noted.slots and node not in reached:
            reached.add(node)
            queue += [target for target, _ in node.next]
    return reached


def _needed(steps: Sequence[Step], nodes: set[int], slots: Sequence[int]) -> list[Step]:
    """The steps without which a result, or one of the nodes that it leads to, would not be. nodes: the slots of what has such a node."""
    wanted = {*slots, *nodes}
    kept = []
    for s in reversed(steps):
        if s.signature.check is not None or not wanted.isdisjoint(range(s.slot, s.slot + len(s.signature.avals))):
            kept.append(s)
            wanted.update([a for a in s.args if type(a) is int])
    return kept[::-1]


def _edge(edge: tuple[Any, int], given: dict[Any, int], number_of: dict[Node, int]) -> tuple[int, int]:
    target, nr = edge
    number = number_of.get(target)
    if number is not None:
        return number, nr
    found = given.get(edge)
    if found is None:
        raise Unfollowed
    return found, 0
