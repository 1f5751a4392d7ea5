"""What a trace has found: a program, what it reads, and what becomes of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.core.anomaly import Fault, first_of
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import is_conj, is_neg
from torchgrad_jax.core.writing import memory_of
from torchgrad_jax.lifting.reach import Reach
from torchgrad_jax.lifting.structures import Layout, Refused, layout_of, same_items
from torchgrad_jax.lifting.tracing import Met, Refusal, TraceRecorder
from torchgrad_jax.memory.storage import Storage, VersionCounter, View
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.recording.epoch import Epoch
from torchgrad_jax.runtime.recording.step import Step
from torchgrad_jax.runtime.value import Aval, Value

# What an input of the program is: the content of a tensor, or all of the memory that it is a part of; a constant; numbers drawn anew.
CONTENT, MEMORY, CONSTANT, DRAWN = "content", "memory", "constant", "drawn"


class Place(NamedTuple):
    """A tensor that the program reads or changes. kind: "argument", "captured", or "grad": the `.grad` of another. at: which argument, the tensor,
    or the place of the one whose gradient it is. order: see `order_of`."""

    kind: str
    at: Any
    aval: Aval
    requires_grad: bool
    leaf: bool
    order: Any


def order_of(t: Tensor) -> Any:
    """What a function may be told of how a tensor lies in memory, apart from where; None where it is in row-major order."""
    view = t._view
    if view is None:
        return None
    kind = t._aval.dtype.kind
    turned = is_conj(t) if kind == "c" else kind == "f" and is_neg(t)
    return (view.strides, turned) if turned or not t.is_contiguous() else None


def part_of(t: Tensor) -> Any:
    """Which part of its memory a tensor is, in operations on that; None where it is all of it."""
    view, storage = t._view, t._storage
    return None if view is None or storage is None else (view.strides, view.offset, storage.peek().aval, order_of(t))


class Made(NamedTuple):
    """A tensor that each call makes. content, memory: results of the program; view: how it lies in memory, None where it is row-major and has it for
    itself. leaf: whether it requires a gradient without being computed from anything; root: which of the outputs with a gradient it is, else -1."""

    content: int
    memory: int
    aval: Aval
    view: View | None
    leaf: bool
    root: int


class Write(NamedTuple):
    """A result that becomes the content of a tensor's memory, whose version grows."""

    place: int
    result: int
    aval: Aval
    versions: int


class Lifted:
    """A function as a program.

    places: the tensors, arguments first. memories: for each the first one that lies in the same. parts: which part of it they are (`part_of`), by
    place, where the program reads or writes all of it. inputs: what each of the program's inputs is (CONTENT ...), and which
    place, or the array or draw; leaf_avals: theirs. draws: what draws random numbers on the host, or reads learning rates, in order; renewed: the
    groups of optimizers whose these are. step, numbers, lines: the program,
    Python's numbers in it, and the user's lines of its checks. wanted: the slots of its results. layout: of what the function returns; returned: its
    tensors, as places (-1, -2, ...) or which of `made` they are. grads: places and what their `.grad` becomes, one of `made` or None. without_grad:
    places whose `.grad` has to be None. epoch, slots: of the first run, for what is found out about the backward pass; roots: the outputs that have
    a gradient; targets: places that may get one, with the nodes that stand for them; whose: see `Finding.whose`. faults: what may be found to be
    wrong; answer: the result that says which of them is, counted from 1.
    """

    __slots__ = (
        "places", "inputs", "leaf_avals", "memories", "parts", "draws", "step", "numbers", "lines", "wanted", "layout", "returned", "made", "writes",
        "grads", "without_grad", "device", "epoch", "slots", "roots", "targets", "whose", "faults", "answer", "renewed",
    )  # fmt: skip

    def __init__(self, finding: Finding, layout: Layout, returned: list[int]) -> None:
        rec = finding.rec
        epoch = rec.epoch
        self.layout, self.returned = layout, returned
        self.grads, self.without_grad = finding.grads(), finding.without_grad()
        self.writes = finding.writes()
        self.faults: list[Fault] = [fault for _, fault in rec.suspects]
        self.answer = finding.answer()
        self.roots: list[Tensor] = finding.roots
        self.targets = [(finding.place(m), m.boundary or m.tensor._edge()[0]) for m in rec.mets.values() if m.rg] if self.roots else []
        self.whose = finding.whose() if self.roots else {}
        self.inputs: list[tuple[str, Any]] = [finding.input(v) for v in epoch.leaves.values()]
        self.leaf_avals: list[Aval] = [v.aval for v in epoch.leaves.values()]
        self.draws: list[Callable[[], Any]] = list(rec.draws.values())
        self.renewed = rec.renewed or []
        self.places: list[Place] = finding.places
        self.made: list[Made] = finding.made
        self.memories, self.parts = finding.memories(), finding.parts(self.inputs, self.writes)
        self.wanted: list[int] = list(finding.results)
        self.step: Step = epoch.step
        self.numbers: list[np.ndarray] = epoch.arrays_of_numbers()
        self.lines: dict[int, tuple[str, int] | None] = dict(epoch.lines)
        self.device: device = rec.device
        self.epoch: Epoch | None = epoch
        self.slots: dict[Value, int] = epoch.foreign

    def differs(self, arguments: Sequence[Tensor]) -> str:
        """In what the tensors from outside are not like those that were traced, in words."""
        tensors: list[Any] = []
        parts = dict(self.parts)
        for i, place in enumerate(self.places):
            t = arguments[place.at] if place.kind == "argument" else place.at
            if place.kind == "grad":
                extra = tensors[place.at]._extra
                t = None if extra is None else extra.grad
                if t is None:
                    return "the .grad of a tensor is None and was not"
            tensors.append(t)
            if order_of(t) != place.order or (i in parts and part_of(t) != parts[i]):
                return "a tensor that it reaches lies otherwise in memory"
            if t._aval is not place.aval:
                return f"a tensor that it reaches was {place.aval} and is {t._aval}"
            if t.requires_grad is not place.requires_grad or (t.grad_fn is None) is not place.leaf:
                return f"requires_grad or grad_fn of a tensor of shape {list(place.aval.shape)} is not what it was"
            if i in self.without_grad and t._extra is not None and t._extra.grad is not None:
                return f"the .grad of a tensor of shape {list(place.aval.shape)} was None and is not"
        return "a tensor that it reaches is not what it was"

    def let_go(self) -> None:
        """Forget the first run."""
        self.epoch, self.slots, self.roots, self.whose = None, {}, [], {}
        self.targets = [(place, None) for place, _ in self.targets]


def find(rec: TraceRecorder, result: Any, arguments: Sequence[Tensor], given: Sequence[tuple[Any, Any]], reach: Reach) -> Lifted:
    """What a trace that came to its end has found. Refusal where it cannot be called again.

    given: the lists and dicts among the arguments, each with a copy from before. reach: what the function reached when it began.
    """
    rec.check_random()
    rec.check_host_random()
    if rec.grad_enabled != rec.outer.grad_enabled or rec.inference != rec.outer.inference or rec.rare != rec.outer.rare + 1:
        raise Refusal("it leaves another mode behind than it found: use the modes as context managers")
    if why := reach.refused():
        raise Refusal(why)
    if not all([same_items(now, was) for now, was in given]):
        raise Refusal("it changes a list or a dict that it was given, or sets an attribute of a tensor: return what is new")
    finding = Finding(rec, arguments)
    tensors: list[Tensor] = []
    try:
        layout = layout_of(result, tensors, {id(now) for now, _ in given}, {id(c) for c in reach.containers})
    except Refused as refused:
        raise Refusal(str(refused)) from None
    return Lifted(finding, layout, [finding.returned(t) for t in tensors])


class Finding:
    """A trace, while a Lifted is made of it. Refusal where it cannot be called again."""

    def __init__(self, rec: TraceRecorder, arguments: Sequence[Tensor]) -> None:
        self.rec = rec
        self.places: list[Place] = []
        self.results: dict[int, int] = {}
        self.made: list[Made] = []
        self.roots: list[Tensor] = []
        self._places: dict[int, int] = {}
        self._made: dict[int, int] = {}
        self._kept: list[Tensor] = []
        self._memories: set[Storage] = {met.storage for met in rec.mets.values()}
        self._arguments = {id(t): i for i, t in enumerate(arguments)}
        for t in arguments:
            self.place(rec.mets[id(t)])

    def place(self, met: Met) -> int:
        """Which place a tensor from outside is."""
        t = met.tensor
        found = self._places.get(id(t))
        if found is None:
            if id(t) in self._arguments:
                kind, at = "argument", self._arguments[id(t)]
            elif met.owner is not None:
                kind, at = "grad", self.place(met.owner)
            else:
                kind, at = "captured", t
            found = self._places[id(t)] = len(self.places)
            self.places.append(Place(kind, at, t._aval, met.rg, met.node is None, order_of(t)))
        return found

    def memories(self) -> list[int]:
        """For each place the first one that lies in the same memory."""
        first: dict[int, int] = {}
        return [first.setdefault(memory_of(self.rec.mets[t].tensor), i) for i, t in enumerate(self._places)]

    def parts(self, inputs: Sequence[tuple[str, Any]], writes: Sequence[Write]) -> list[tuple[int, Any]]:
        """The places in memory of which the program reads or writes all, or in which it asks where they lie, and which part of it they are."""
        tensors = [self.rec.mets[t].tensor for t in self._places]
        whole = self.rec.located | {memory_of(tensors[at]) for kind, at in inputs if kind is MEMORY} | {memory_of(tensors[w.place]) for w in writes}
        return [(i, part_of(t)) for i, t in enumerate(tensors) if memory_of(t) in whole]

    def _result(self, value: Value) -> int:
        slot = value.slot if value.epoch is self.rec.epoch else self.rec.enter(value)
        return self.results.setdefault(slot, len(self.results))

    def input(self, value: Value) -> tuple[str, Any]:
        """What an input of the program is."""
        rec = self.rec
        met = rec.owners.get(value)
        if met is not None:
            return MEMORY if met.view is not None and value is met.value else CONTENT, self.place(met)
        if value in rec.draws:
            return DRAWN, list(rec.draws).index(value)
        if value in rec.constants:
            return CONSTANT, value.array
        raise Refusal("it reads a tensor from outside in a way that cannot be followed (what a graph from outside has saved, for example)")

    def returned(self, t: Tensor) -> int:
        """A tensor that the function returns: a place or one of `made`."""
        self.rec.meet(t)
        met = self.rec.mets.get(id(t))
        return self.make(t) if met is None else -1 - self.place(met)

    def make(self, t: Tensor) -> int:
        """Which of `made` a tensor is that the function made."""
        found = self._made.get(id(t))
        if found is not None:
            return found
        if type(t) is not Tensor or t.__dict__:
            raise Refusal(f"it returns a new {type(t).__name__}{' that was given attributes' if t.__dict__ else ''}")
        storage = t._storage
        if storage is not None:
            if storage in self._memories or (storage.siblings is not None and any(r() in self._memories for r in storage.siblings)):
                raise Refusal("it returns (or leaves as a gradient) a tensor on memory of another one: clone() it")
            self._memories.add(storage)
        value, view, memory = t._content(), None, -1
        if storage is not None and t._view is not None and not t.is_contiguous():
            view, memory = t._view, self._result(storage.peek())
        root = -1
        if t.grad_fn is not None:
            root = len(self.roots)
            self.roots.append(t)
        self._made[id(t)] = found = len(self.made)
        self._kept.append(t)
        self.made.append(Made(self._result(value), memory, value.aval, view, t._rg and root < 0, root))
        return found

    def whose(self) -> dict[VersionCounter | Value, tuple[bool, int]]:
        """By the counter that counts what is written to a memory, or the Value of a tensor that has it for itself: whether it is one of `made`, and
        which, or else which place."""
        found: dict[VersionCounter | Value, tuple[bool, int]] = {}
        for i, t in enumerate(self._kept):
            found[t._value if t._storage is None else t._storage.counter] = True, i
        for i, t in enumerate(self._places):
            found[self.rec.mets[t].storage.counter] = False, i
        return found

    def answer(self) -> int:
        """Which result says what is wrong; -1 where nothing can be."""
        return self._result(first_of([value for value, _ in self.rec.suspects])) if self.rec.suspects else -1

    def grads(self) -> list[tuple[int, int | None]]:
        """The places whose `.grad` has become another tensor."""
        found: list[tuple[int, int | None]] = []
        for met in list(self.rec.mets.values()):
            now = None if met.tensor._extra is None else met.tensor._extra.grad
            if now is met.grad:
                continue
            if now is None:
                found.append((self.place(met), None))
                continue
            if id(now) in self.rec.mets or now.grad_fn is not None:
                raise Refusal("it makes a tensor from outside, or one with a graph, the .grad of another")
            found.append((self.place(met), self.make(now)))
        return found

    def without_grad(self) -> list[int]:
        """The places whose `.grad` had to be None when it began."""
        return [self.place(met) for met in self.rec.mets.values() if met.reads_grad and met.grad is None]

    def writes(self) -> list[Write]:
        """What is written to the memory of tensors from outside."""
        found = []
        seen: set[Storage] = set()
        for met in list(self.rec.mets.values()):
            t, storage = met.tensor, met.storage
            if t._storage is not storage or t._view is not met.view:
                raise Refusal("it gives a tensor from outside other memory or another layout (.data = ..., set_, resize_, transpose_): use copy_()")
            if t.requires_grad != met.rg or t._node is not (met.boundary or met.node):
                raise Refusal("it changes the graph of a tensor from outside (by requires_grad_(), detach_(), or a write that autograd follows)")
            if storage in seen:
                continue
            seen.add(storage)
            versions, now = storage.counter.version - met.version, storage.peek()
            if now is met.value and not versions:
                continue
            slot = now.slot if now.epoch is self.rec.epoch else self.rec.enter(now)
            if slot == self.rec.epoch.foreign.get(met.value) and not versions:
                continue
            found.append(Write(self.place(met), self._result(now), now.aval, versions))
        return found
