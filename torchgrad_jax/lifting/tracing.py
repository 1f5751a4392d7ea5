"""Running a function once to find out what it is as a program: which tensors it reads, which it changes, and by which operations.

The function runs on its own tensors and on those that it reaches, but on a recorder of its own, in which every content is hidden: whatever it
reads that it has not made itself becomes an input of the program. So nothing has to be put in the place of anything, and nothing of the trace is
left behind: when the function is through, the recorder's program is run like any other, and the tensors that it made have their contents.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.core.anomaly import Fault
from torchgrad_jax.core.level import Interpreter
from torchgrad_jax.core.node import Calculus, Edge, Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import memory_of
from torchgrad_jax.functions.random import drawn, set_state_of_random, state_of_random
from torchgrad_jax.memory.storage import Link
from torchgrad_jax.runtime.elsewhere import TracedInput
from torchgrad_jax.runtime.recorder import AUTOCAST, Recorder, per_thread, root_of
from torchgrad_jax.runtime.recording.epoch import Epoch, Failure, running
from torchgrad_jax.runtime.recording.step import BEYOND, Step
from torchgrad_jax.runtime.user_code import user_line
from torchgrad_jax.runtime.value import Aval, Lifted, Value, Watch, is_tracer, watches


class TracingError(RuntimeError):
    """A function cannot be one program: why, at which of the user's lines, and the way out."""


class Refusal(Exception):
    """Why what was traced cannot be called again as a program."""


class Gone(dict[int, Any]):
    """The outcomes of a program that is never run: each look at one of its results is told `text`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def __bool__(self) -> bool:
        return True

    def __contains__(self, slot: object) -> bool:
        return True

    def __missing__(self, slot: int) -> Failure:
        return Failure(lambda: RuntimeError(self.text))


class Boundary(Node):
    """Stands in the place of the node of a tensor from outside, while a function is traced: the graph within ends here, and goes on outside."""

    __slots__ = ("aval",)

    def __init__(self, aval: Aval, edge: Edge) -> None:
        self.aval, self.next, self.seq, self.hooks = aval, (edge,), edge[0].seq, None

    def name(self) -> str:
        """See Node."""
        return self.next[0][0].name()

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return (self.aval,)

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        rec = per_thread.recorder
        if isinstance(rec, TraceRecorder) and not rec.given_up:
            rec.give_up("a backward pass goes on into the graph of a tensor from outside: detach() it, or compute it within")
        return (grads[0],)

    def describe(self) -> None:
        """See Node: none, so that it is always run."""


def _host_random() -> Any:
    """The states of the generators behind `random` and `numpy.random`."""
    return random.getstate(), pickle.dumps(np.random.get_state(legacy=False))


class Met:
    """A tensor from outside that the function has met, and what it was then.

    value, version: the content of its storage. owner: whose `.grad` it is, if it was found as such. reads_grad: whether what `.grad` was mattered;
    writes_grad: whether it was assigned to before.
    """

    __slots__ = (
        "tensor", "storage", "value", "version", "view", "rg", "node", "nr", "grad", "owner", "reads_grad", "writes_grad", "boundary", "had_storage",
    )  # fmt: skip

    def __init__(self, t: Tensor, owner: Met | None) -> None:
        self.tensor, self.owner = t, owner
        self.had_storage = t._storage is not None
        self.rg, self.node = t.requires_grad, t._present_node()
        self.storage = storage = t._shared()
        self.value, self.version, self.view = storage.peek(), storage.counter.version, t._view
        self.nr = t._nr
        self.grad = None if t._extra is None else t._extra.grad
        self.reads_grad = self.writes_grad = False
        self.boundary: Boundary | None = None

    def take_back(self) -> None:
        """Let the tensor be what it was."""
        t, storage = self.tensor, self.storage
        if storage.peek() is not self.value or storage.counter.version != self.version:
            storage.restore(self.value, self.version)
        t._storage, t._view, t._rg, t._node, t._nr = storage, self.view, self.rg, self.node, self.nr
        if t._extra is not None:
            t._extra.grad = self.grad


class Meeting(Interpreter):
    """Notes each tensor before an operation reads it. Operations are recorded as ever."""

    __slots__ = ("recorder", "_refused")
    notes = True

    def __init__(self, recorder: TraceRecorder) -> None:
        self.recorder = recorder
        self._refused: tuple[Any, int] = (None, 0)

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        for o in operands:
            if isinstance(o, Tensor):
                self.recorder.meet(o)
        return NotImplemented

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Interpreter."""
        return self.apply(bound, operands)

    def view_made(self, t: Any, out: Any, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
        """See Interpreter."""
        self.recorder.meet(t)
        self.recorder.inside[id(out)] = out

    def applied(self, outs: Any, node: Any) -> None:
        """See Interpreter."""
        first = outs[0] if type(outs) is tuple else outs
        refused, self._refused = self._refused, (None, 0)
        if first.epoch is self.recorder.epoch:
            self.recorder.plans[first.slot] = None if node is None else node.plan
            if refused[0] is first.signature:
                self.recorder.refused[first.slot] = refused[1]

    def plan(self, plan_of: Callable[[Any, int], Any], sig: Any, mask: int) -> Any:
        """See Interpreter: where it is not known yet which derivatives will be asked for, those that are refused are noted and left out."""
        if not self.recorder.unasked:
            return plan_of(sig, mask)
        try:
            return plan_of(sig, mask)
        except RuntimeError:
            refused = sum(bit for bit in [1 << i for i in range(mask.bit_length())] if mask & bit and _refuses(plan_of, sig, bit))
            self._refused = (sig, refused)
            return plan_of(sig, mask & ~refused)

    def departs(self) -> None:
        """See Interpreter."""
        self.recorder.departed = True

    def locates(self, t: Any) -> None:
        """See Interpreter: which part of its memory a tensor from outside is makes a difference then."""
        self.recorder.meet(t)
        self.recorder.located.add(memory_of(t))

    def writes_apart(self, t: Any) -> None:
        """See Interpreter: where what is written over has a graph, that goes on without the write."""
        value = t._value if t._storage is None else t._storage.peek()
        if value.epoch is self.recorder.epoch and value.slot in self.recorder.plans:
            followed = self.recorder.plans[value.slot] is not None
        else:
            base = None if t._view is None else t._view.base
            followed = t.requires_grad or (base is not None and base.requires_grad) or getattr(t._storage, "twinned", False)
        if followed:
            self.departs()

    def twin_made(self, t: Any) -> None:
        """See Interpreter."""
        self.recorder.inside[id(t)] = t

    def refuses(self, what: str) -> None:
        """See Interpreter."""
        self.recorder.give_up(f"it uses {what}")

    def draws(self, make: Callable[[], Any]) -> Any:
        """See Interpreter."""
        return self.recorder.draw(make)

    def drew(self, value: Any, make: Callable[[], Any]) -> None:
        """See Interpreter."""
        self.recorder.constants.discard(value)
        self.recorder.draws[value] = make

    def renewed(self, group: dict[str, Any], key: str) -> Any:
        """See Interpreter."""
        if self.recorder.renewed is None:
            return None
        self.recorder.renewed.append(group)
        return drawn(lambda: np.asarray(float(group[key])))

    def meets(self, t: Any, grad: str = "") -> None:
        """See Interpreter."""
        self.recorder.meet(t, grad)


def _refuses(plan_of: Callable[[Any, int], Any], sig: Any, mask: int) -> bool:
    try:
        plan_of(sig, mask)
    except RuntimeError:
        return True
    return False


class TraceRecorder(Recorder, Watch):
    """Records a function. Every Value that it has not made is an input, and none is known by its content.

    mets: the tensors from outside, by their ids, in the order in which they were met. owners: the Values that they had. constants: Values made of
    arrays within. draws: how random numbers were drawn within, and the Values they became. plans: the Plans of the operations' nodes, by the slots of
    their first results. unasked: whether derivatives are asked for later, nobody knows yet of which arguments; refused: the operands, as a mask, that
    an operation then has no derivative for, by that slot. reason: why the function cannot be one program, once it has been given up: then it runs as
    any other, to its end. suspects: Values that will tell whether something is wrong, and what then. casts: `Flags.casts` outside. renewed: the
    groups of optimizers whose learning rates are inputs; None where they are constants. located: the memories of which it was asked where in them
    a tensor lies.
    """

    __slots__ = (
        "outer", "mets", "owners", "constants", "inside", "draws", "random_state", "random_start", "host_random", "given_up", "reason", "strict",
        "twins", "symbols", "before", "plans", "departed", "unasked", "refused", "suspects", "quiet", "casts", "renewed",
        "located",
    )  # fmt: skip

    def __init__(self, outer: Recorder, strict: bool, before: Any = None) -> None:
        super().__init__()
        self.outer, self.strict, self.before = outer, strict, before
        self.quiet = before is not None
        self.suspects: list[tuple[Value, Fault]] = []
        self.symbols: set[Value] = set()
        self.plans: dict[int, Any] = {}
        self.unasked, self.refused = False, dict[int, int]()
        self.departed = False
        self.located: set[int] = set()
        self.renewed: list[dict[str, Any]] | None = None
        self.device, self.grad_enabled, self.inference, self.sequence = outer.device, outer.grad_enabled, outer.inference, outer.sequence
        self.flags, self.rare, self.turned = outer.flags, outer.rare + 1, 0
        self.level = Meeting(self)
        self.casts, self.flags.casts = self.flags.casts, {}
        self.epoch = Epoch(self, Step(None, None, (), None, 0, 0), BEYOND)
        self.mets: dict[int, Met] = {}
        self.owners: dict[Value, Met] = {}
        self.constants: set[Value] = set()
        self.inside: dict[int, Tensor] = {}
        self.draws: dict[Value, Callable[[], Any]] = {}
        self.random_state = self.random_start = state_of_random()
        self.host_random = _host_random()
        self.twins: list[Value] = []
        self.given_up, self.reason = False, ""

    # ------------------------------------------------------------------ what is met

    def meet(self, t: Tensor, grad: str = "") -> None:
        """Note a tensor, if it is from outside, before anything is done with it. grad: see `Interpreter.meets`."""
        if self.given_up:
            return
        met = self.mets.get(id(t))
        if met is None:
            met = self._meet_first(t, None)
        if met is None or not grad:
            return
        if grad == "written":
            met.writes_grad = True
        elif not met.writes_grad:
            met.reads_grad = True
            if met.grad is not None and id(met.grad) not in self.mets:
                self._meet_first(met.grad, met)

    def _meet_first(self, t: Tensor, owner: Met | None) -> Met | None:
        storage = t._storage
        value = t._value if storage is None else storage.peek()
        if id(t) in self.inside or value in self.symbols:
            return None
        if self.before is not None and (value.epoch is self.before.epoch or value in self.before.slots):
            return None
        if value.epoch is self.epoch or value in self.constants or value in self.draws or (storage is None and value in self.owners):
            return None
        if value.array is None:  # pending in another thread
            assert value.epoch is not None
            value.epoch.force(value)
        met = self.mets[id(t)] = Met(t, owner)
        self.owners.setdefault(met.value, met)
        if met.view is not None and met.view.seen == met.storage.writes:
            self.owners.setdefault(t._value, met)
        if met.node is not None and met.rg:
            met.boundary = t._node = Boundary(t._aval, (met.node, met.nr))
            t._nr = 0
        return met

    def leave(self) -> None:
        """Give the tensors from outside their nodes back, and let go of what was noted."""
        for met in self.mets.values():
            t = met.tensor
            if met.boundary is not None and t._node is met.boundary:
                t._node, t._nr = met.node, met.nr

    def take_back(self) -> None:
        """Undo what the function has done to tensors from outside."""
        for met in reversed(self.mets.values()):
            met.take_back()
        set_state_of_random(self.random_start)

    def draw(self, make: Callable[[], Any]) -> Any:
        """What `make` draws. It will be drawn anew at each call."""
        if self.given_up:
            return make()
        self.check_random()
        found = make()
        self.random_state = state_of_random()
        return found

    def check_random(self) -> None:
        """Give up where the state of the default generator was changed otherwise than by drawing."""
        if not np.array_equal(self.random_state, state_of_random()):
            self.give_up("it seeds the random generator, sets its state, or draws by an operation that does so on the host alone")

    def check_host_random(self) -> None:
        """Give up where numbers of Python's or NumPy's generator were drawn, which would be the same ones at each call."""
        if self.host_random != _host_random():
            self.give_up("it draws random numbers by Python's or NumPy's generator, which would be the same at each call: draw them by torch")

    # ------------------------------------------------------------------ what is hidden

    def hides(self, value: Value) -> bool:
        """See Watch."""
        return per_thread.recorder is self and not self.given_up and value not in self.constants

    def made(self, value: Value) -> None:
        """See Watch."""
        if per_thread.recorder is self and not self.given_up:
            self.constants.add(value)

    def looked(self, value: Value) -> None:
        """See Watch."""
        self.give_up(
            "the value of a tensor was asked for (by item(), bool(), numpy(), printing, or an operation whose result's shape depends on it); choose "
            "by torch.where instead of if, keep the number a tensor, or do this outside of the function"
        )

    def suspect(self, value: Value, fault: Fault) -> None:
        """See Watch."""
        self.suspects.append((value, fault))

    def fault(self) -> Fault | None:
        """The first thing that is wrong, once the trace was run."""
        suspects, self.suspects = self.suspects, []
        return next((fault for value, fault in suspects if np.asarray(value.concrete()).any()), None)

    def give_up(self, reason: str) -> None:
        """The function cannot be one program. TracingError where it has to be; else it goes on like any other, and what it has recorded is run."""
        reason = f"{reason} (at {user_line()})"
        if self.strict:
            raise TracingError(f"this function cannot be compiled whole: {reason}")
        self.reason = reason
        self.run("look")
        fault = self.fault()
        if fault is not None:
            raise fault.error()

    def run(self, reason: str) -> None:
        """Run what was recorded, which ends the trace."""
        if self.given_up:
            self.flush(reason)
            return
        self.given_up = True
        self.inside = {}
        watches.remove(self)
        self.level, self.rare = None, self.outer.rare & ~AUTOCAST | self.rare & AUTOCAST
        self.leave()
        leaves = self.epoch.leaves
        for twin in self.twins:
            twin.array, twin.epoch, twin.slot = leaves[-1 - twin.slot].concrete(), None, 0
        for leaf in leaves.values():
            leaf.concrete()
        self.epoch.on_host = [*self.epoch.on_host, *leaves]
        self.epoch.lines = dict(self.epoch.lines)
        running.run_pending(self, reason)

    # ------------------------------------------------------------------ recording

    def enter(self, value: Value) -> int:
        """See Recorder."""
        if self.given_up:
            return super().enter(value)
        epoch = self.epoch
        slot = epoch.foreign.get(value)
        if slot is None:
            if isinstance(value.array, Lifted):  # of a transform within: its level carries the operation out
                raise TracedInput
            if value.array is not None and is_tracer(value.array):
                self.give_up("a tensor from outside holds a JAX tracer: hand it over as an argument")
                return super().enter(value)
            if value.aval.device is not self.device:
                self.switch_device(value.aval.device)
            slot = -1 - len(epoch.leaves)
            epoch.note_foreign(value, slot)
            epoch.leaves[-1 - slot] = value
        return slot

    def alias(self, value: Value) -> Value:
        """See Recorder."""
        if self.given_up or isinstance(value.array, Lifted) or value.epoch is self.epoch and value.slot >= 0:
            return super().alias(value)
        twin = Value()
        twin.aval, twin.array, twin.counter, twin.version = value.aval, None, None, 0
        twin.slot, twin.epoch = value.slot if value.epoch is self.epoch else self.enter(value), self.epoch
        self.twins.append(twin)
        return twin

    def flush(self, reason: str) -> None:
        """See Recorder: a trace is not cut."""
        if self.given_up:
            super().flush(reason)

    def overflow(self) -> None:
        """See Recorder: a trace has no bounds."""
        if self.given_up:
            super().overflow()

    def switch_device(self, where: Any) -> None:
        """See Recorder: a trace may begin on any device and has one."""
        if self.given_up:
            super().switch_device(where)
        elif self.epoch.step.parent is None and not self.epoch.leaves:
            self.device, self.root = where, root_of(where)
        else:
            self.give_up(f"it computes on two devices, {self.device} and {where}")


def traced(function: Callable[[], Any], strict: bool, tensors: Sequence[Tensor], finish: Callable[[TraceRecorder, Any], Any]) -> tuple[Any, Any]:
    """What `function` returns, called once like any other, and what `finish` makes of the trace before it is run; of a trace that was given up, the
    reason. tensors: to be met first. When it raises, tensors from outside are what they were.

    TracingError where it is to be one program (`strict`) and cannot.
    """
    outer = per_thread.recorder
    for t in tensors:
        if t._storage is not None:  # what is laid out in another order when it is asked for is laid out outside
            t._storage.peek()
    outer.flush("jit")
    rec = TraceRecorder(outer, strict)
    rec.renewed = []
    found: Any = None
    try:
        try:
            per_thread.recorder = rec
            watches.append(rec)
            for t in tensors:
                rec.meet(t)
            result = function()
            if not rec.given_up:
                try:
                    found = finish(rec, result)
                except Refusal as refusal:
                    if strict:
                        raise TracingError(f"this function cannot be compiled whole: {refusal}") from None
                    rec.reason = str(refusal)
            rec.run("jit")
            fault = rec.fault()
            if fault is not None:
                rec.take_back()
                raise fault.error()
            return result, rec.reason or found
        except BaseException:
            if not rec.given_up:
                rec.take_back()
            raise
        finally:
            _leave(rec, outer)
    except BaseException:  # an interrupt may have come while it was taken back, or left
        if not rec.given_up:
            rec.take_back()
        _leave(rec, outer)
        raise


def _leave(rec: TraceRecorder, outer: Recorder) -> None:
    if rec in watches:
        watches.remove(rec)
    if rec.given_up:  # it ran as any other, to its end or to its error
        outer.grad_enabled, outer.inference = rec.grad_enabled, rec.inference
    else:
        rec.leave()
    outer.sequence, outer.turned = rec.sequence, outer.turned | rec.turned
    outer.flags.casts = rec.casts
    rec.mets, rec.owners, rec.constants, rec.inside, rec.draws, rec.suspects = {}, {}, set(), {}, {}, []
    per_thread.recorder = outer


def abandon(rec: TraceRecorder, outer: Recorder, text: str) -> None:
    """End a trace that is not run, and `discard` it. It may be done again, where an interrupt came meanwhile."""
    per_thread.recorder = outer
    outer.flags.casts = rec.casts
    if rec in watches:
        watches.remove(rec)
    discard(rec, text)


def discard(rec: TraceRecorder, text: str) -> None:
    """Take back what a trace has changed outside, and let those who kept a tensor of it be told `text`: it has no value."""
    rec.take_back()
    rec.leave()
    ended = rec.epoch
    ended.outcomes, ended.ended = Gone(text), True
    rec.given_up = True
    rec.begin()
    ended.values, ended.leaves, ended.foreign = {}, {}, {}
