"""Several operations as one: recorded once without being run, and then recorded as a single step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.elsewhere import TracedInput
from torchgrad_jax.runtime.operation import ArgSpec, Expansion, Signature
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.recording.epoch import Epoch
from torchgrad_jax.runtime.recording.step import Step
from torchgrad_jax.runtime.value import Value, is_tracer


class ScratchRecorder(Recorder):
    """Records operations without running them: every Value that it has not made itself is an input, pending or not."""

    __slots__ = ()

    def __init__(self, rec: Recorder) -> None:
        super().__init__()
        self.device, self.root = rec.device, rec.root
        self.cutting = None
        self.epoch = Epoch(self, Step(None, None, (), None, 0, 0), 1 << 62)

    def enter(self, value: Value) -> int:
        """The input slot of a Value."""
        epoch = self.epoch
        slot = epoch.foreign.get(value)
        if slot is None:
            slot = -1 - len(epoch.leaves)
            epoch.note_foreign(value, slot)
            epoch.leaves[-1 - slot] = value
        return slot

    def alias(self, value: Value) -> Value:
        """See Recorder. Of what others have recorded the twin is the same input, and nothing is computed for it."""
        if value.epoch is self.epoch:
            return super().alias(value)
        twin = Value()
        twin.aval, twin.array, twin.slot, twin.epoch = value.aval, value.array, value.slot, value.epoch
        twin.counter, twin.version = None, 0
        self.epoch.note_foreign(twin, self.enter(value))
        return twin

    @property
    def steps(self) -> list[Step]:
        """The operations that were recorded, in their order."""
        return steps_to(self.epoch.step)

    def close(self) -> None:
        """Let go of the Values of what was recorded, and of those that it was recorded of: epochs and their Values refer to each other, so they would
        stay, and whatever is held when a program is run becomes a result of it."""
        ended = self.epoch
        self.begin()
        ended.finish()


class Looked(BaseException):
    """A value was asked for while what computes it was rehearsed."""


class Rehearsal(ScratchRecorder):
    """Stands in for a thread's recorder while what the user's Python does is found out, without computing anything: a look raises Looked."""

    __slots__ = ()

    def __init__(self, rec: Recorder) -> None:
        super().__init__(rec)
        self.sequence, self.grad_enabled, self.flags = rec.sequence, rec.grad_enabled, rec.flags

    def enter(self, value: Value) -> int:
        """See ScratchRecorder."""
        if value.array is not None and is_tracer(value.array):
            raise TracedInput
        return super().enter(value)

    def flush(self, reason: str) -> None:
        """See Recorder: nothing is run."""
        raise Looked


@contextmanager
def rehearsing(rec: Recorder) -> Iterator[Rehearsal]:
    """A block in which the thread's operations are rehearsed. Whoever opens it takes what it raises, a `Looked` too, as that it cannot be done."""
    scratch = Rehearsal(rec)
    try:
        per_thread.recorder = scratch
        yield scratch
    finally:
        per_thread.recorder = rec
        scratch.close()


def steps_to(step: Step | None) -> list[Step]:
    """The operations that end at `step`, first to last."""
    found = []
    while step is not None and step.signature is not None:
        found.append(step)
        step = step.parent
    return found[::-1]


class Composite:
    """What a ScratchRecorder has recorded: a BoundOp. It is taken apart again where a program is made of it.

    checked: whether an operation of it has a check. nbytes: of the results of all its operations.
    """

    __slots__ = ("name", "device", "signatures", "differentiable", "checked", "nbytes", "_expansion", "_specs")
    keeps_order, order = False, None

    def __init__(self, name: str, scratch: ScratchRecorder, results: Sequence[Value], operands: Sequence[Any], numbers: Sequence[int]) -> None:
        """operands: the Values that were entered, and numbers. numbers: for each number among the steps' arguments the operand that it is."""
        self.name, self.differentiable = name, False
        self.device: device | None = None
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}
        place = {id(o): i for i, o in enumerate(operands) if type(o) is Value}
        slots = [v.slot if v.epoch is scratch.epoch else scratch.enter(v) for v in results]
        steps = scratch.steps
        self.checked = any(s.signature.check is not None for s in steps)
        self.nbytes = sum([s.signature.nbytes for s in steps])
        # A check is counted where it is recorded, so what holds one stays an operation of its own.
        self._specs = None if self.checked else tuple([o.aval if type(o) is Value else type(o) for o in operands])
        leaves = [place[id(v)] for v in scratch.epoch.leaves.values()]
        self._expansion = Expansion(list(steps), leaves, list(numbers), slots, tuple([v.aval for v in results]))

    def expand(self, specs: tuple[ArgSpec, ...]) -> Expansion | None:
        """The operations that it is made of, for operands like those that it was made for."""
        return self._expansion if specs == self._specs else None

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""
        steps, operands, number_places, results, _ = self._expansion

        def function(*arrays: Any) -> tuple[Any, ...]:
            env = {-1 - i: arrays[p] for i, p in enumerate(operands)}
            numbers = iter(number_places)
            for step in steps:
                outs = step.signature.function(*[env[a] if type(a) is int else arrays[next(numbers)] for a in step.args])
                for i, out in enumerate(outs):
                    env[step.slot + i] = out
            return tuple([env[slot] for slot in results])

        return function

    def check(self, specs: Sequence[ArgSpec]) -> None:
        """What it is made of checks nothing."""


class Composed(NamedTuple):
    """What was rehearsed, as one operation. constants, numbers: its operands behind the Values that it was asked to be made from. One object among
    the numbers that were recorded is one operand."""

    whole: Composite
    constants: tuple[Value, ...]
    numbers: tuple[Any, ...]


def composed(name: str, scratch: ScratchRecorder, results: Sequence[Value], given: Sequence[Value]) -> Composed | None:
    """All that `scratch` has recorded as one operation on `given`; None where some of it checks values, or is made from what is pending elsewhere."""
    for v in results:
        if v.epoch is not scratch.epoch:
            scratch.enter(v)
    steps, known = scratch.steps, {id(v) for v in given}
    constants = tuple([v for v in scratch.epoch.leaves.values() if id(v) not in known])
    if any([v.array is None for v in constants]) or any([s.signature.check is not None for s in steps]):
        return None
    recorded = [scratch.epoch.numbers[place] for s in steps for place in s.numbers]
    numbers = tuple({id(n): n for n in recorded}.values())
    places = {id(n): len(given) + len(constants) + i for i, n in enumerate(numbers)}
    return Composed(Composite(name, scratch, results, [*given, *constants, *numbers], [places[id(n)] for n in recorded]), constants, numbers)
