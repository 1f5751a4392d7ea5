"""The Recorder appends operations to the program that is pending in its thread; Steps are the programs seen so far.

Programs are kept as a tree: a Step is one operation (or one more input) after the Steps before it, so the Step that
a program ends at identifies its whole structure, and recording an operation that was recorded at this place before
is one dict lookup that also yields its output avals. This is what makes a loop cheap from its second turn on.
"""

from __future__ import annotations

import threading
from functools import cache
from sys import getrefcount
from typing import Any

import numpy as np

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.device import CPU, device
from torchgrad_jax.runtime.notices import Changing
from torchgrad_jax.runtime.operation import NUMBER_DTYPES, BoundOp, Signature, signature
from torchgrad_jax.runtime.value import Aval, Epoch, Value, is_tracer

# Past SOFT_LIMIT pending outputs (or bytes of inputs) a program is cut where it comes back to its first operation,
# past HARD_LIMIT at once.
SOFT_LIMIT = 2_000
HARD_LIMIT = 6_000
SOFT_BYTES = 1 << 29
MAX_STEPS = 400_000
# The bits of Recorder.turned.
TURNED, LOOK = 1, 2

_new = object.__new__


class TracedInput(Exception):
    """An input is a JAX tracer: the operation is called at once instead of being recorded."""


class DeviceChange(Exception):
    """An input lives on another device than the pending program."""


class Step:
    """One operation, or one more input, at one place of a program.

    slot: of the first output (counted from 0), or of the input (-1, -2, ...). `signature` is None for an input. numbers: for each Python number among
    the operands, its place in the program's numbers of that dtype. counts, nbytes: of all numbers and outputs up to here.
    """

    __slots__ = ("next", "parent", "first", "signature", "args", "aval", "slot", "end", "numbers", "counts", "nbytes", "programs")

    def __init__(self, parent: Step | None, sig: Signature | None, args: tuple[Any, ...], aval: Any, slot: int, end: int):
        self.next: dict[Any, Step] = {}
        self.parent = parent
        self.first: Signature | None = sig if parent is None or parent.first is None else parent.first
        self.signature: Any = sig  # a Signature, but for inputs
        self.args = args
        self.aval = aval
        self.slot = slot
        self.end = end
        self.programs: dict[Any, Any] | None = None
        self.numbers: tuple[tuple[str, int], ...] = ()
        self.counts: dict[str, int] = {} if parent is None else parent.counts
        self.nbytes: int = 0 if parent is None else parent.nbytes
        if sig is not None:
            self.nbytes += sig.nbytes
            if sig.numbered:
                self._place_numbers()

    def _place_numbers(self) -> None:
        counts = dict(self.counts)
        places = []
        for kind in self.args:
            if type(kind) is not int:
                array = NUMBER_DTYPES[kind].kind
                places.append((array, counts.get(array, 0)))
                counts[array] = counts.get(array, 0) + 1
        self.numbers, self.counts = tuple(places), counts


_roots: dict[device, Step] = {}
_steps = 0
_entering = threading.Lock()


def _root(where: device) -> Step:
    global _steps
    if _steps > MAX_STEPS:  # structures that never come back must not pile up
        _roots.clear()
        _steps = 0
    found = _roots.get(where)
    if found is None:
        found = _roots[where] = Step(None, None, (), None, 0, 0)
    return found


class Recorder:
    """What is pending in one thread, and the flags that the layers above keep per thread.

    grad_enabled: grad mode. rare: how many modes and other rarities are active in this thread; while any is, dispatch takes its long way.
    inference: inference mode; grad_enabled is off then. turned: what the next operation that extends a graph has to stop for, as bits: TURNED,
    a backward has finished, so it begins a new program; LOOK, an inference tensor was read, perhaps to be saved for backward.
    rolling: whether the last program was run as one of many that differ in how often their loops go round.
    """

    __slots__ = (
        "step", "epoch", "values", "leaves", "floats", "ints", "complexes", "aliases", "foreign", "checks", "failed_checks",
        "limit", "bytes", "device", "thread", "turned", "grad_enabled", "inference", "rare", "sequence", "flags", "lock", "last", "recent",
        "on_host", "changing", "rolling",
    )  # fmt: skip

    def __init__(self) -> None:
        self.device = CPU
        self.thread = threading.get_ident()
        self.turned = 0
        self.rolling = False
        self.grad_enabled = True
        self.inference = False
        self.rare = 0
        self.sequence = 0
        self.flags: dict[str, Any] = {}
        self.failed_checks: list[Any] = []
        self.lock = threading.RLock()
        self.recent: tuple[Step, ...] = ()  # where the last programs ended
        self.changing = Changing()
        self.last: Signature | None = None  # of the operation after which the program was run, while `step` is a root
        self.clear()

    def clear(self) -> None:
        """Begin an empty program."""
        self.step = _root(self.device)
        self.epoch = Epoch(self)
        self.values: list[Value] = []
        self.leaves: list[Value] = []
        self.floats: list[float] = []
        self.ints: list[int] = []
        self.complexes: list[complex] = []
        self.aliases: list[Value] = []
        self.foreign: dict[Value, int] = {}
        self.on_host: list[Value] = []  # inputs that are host data and were used before
        self.checks: list[Any] = []
        self.bytes = 0
        self.limit = 1 if modes.execution == "eager" else SOFT_LIMIT

    # ------------------------------------------------------------------ recording

    def enter(self, value: Value) -> int:
        """The slot of `value`, which is not of this program so far: it becomes an input of it."""
        slot = self.foreign.get(value)
        if slot is not None:
            return slot
        array = value.array
        if array is None:
            array = value.concrete()
        aval = value.aval
        if type(array) is np.ndarray:
            if value.epoch is not None:
                self.on_host.append(value)
        elif type(array) is not _array_class() and is_tracer(array):
            raise TracedInput
        if aval.device is not self.device:
            raise DeviceChange
        step = self.step.next.get(aval)
        if step is None:
            step = self._add(aval, Step(self.step, None, (), aval, -1 - len(self.leaves), self.step.end))
        self.step = step
        self.leaves.append(value)
        if self.bytes > SOFT_BYTES:
            self.limit = min(self.limit, len(self.values) + 1)
        self.bytes += aval.nbytes
        owner = value.epoch
        if owner is None:
            with _entering:  # two threads may enter one fresh Value at the same time
                owner = value.epoch
                if owner is None:
                    value.slot, value.epoch = step.slot, self.epoch
                    return step.slot
        if owner.recorder is self:
            value.slot, value.epoch = step.slot, self.epoch
        else:  # another thread reads `slot` and `epoch` without a lock: they stay its own
            self.foreign[value] = step.slot
        return step.slot

    def extend(self, bop: BoundOp, args: tuple[Any, ...], key: Any, operands: tuple[Any, ...]) -> Step:
        """The Step of an operation that was not recorded at this place before."""
        specs = tuple([o.aval if type(o) is Value else type(o) for o in operands])
        sig = signature(bop, specs)
        end = self.step.end + len(sig.avals)
        aval = sig.avals[0] if sig.single else sig.avals
        return self._add(key, Step(self.step, sig, args, aval, self.step.end, end))

    def _add(self, key: Any, step: Step) -> Step:
        global _steps
        _steps += 1
        return self.step.next.setdefault(key, step)

    def operand(self, operand: Any) -> Any:
        """What stands in a key for an operand that is not of this program so far: a new input's slot, a number's type."""
        return self.enter(operand) if type(operand) is Value else type(operand)

    def number(self, number: Any) -> None:
        """Make a Python number an input of the program; its type stands for it in the key."""
        kind = type(number)
        if kind is float:
            self.floats.append(number)
        elif kind is int or kind is bool:
            self.ints.append(number)
        else:
            self.complexes.append(number)

    def alias(self, value: Value) -> Value:
        """Another Value of the same content: what a copy is when arrays are immutable."""
        if value.array is None and value.epoch is not self.epoch:
            value.concrete()
        twin = Value()
        twin.aval, twin.array, twin.slot, twin.epoch = value.aval, value.array, value.slot, value.epoch
        twin.counter, twin.version = None, 0
        if twin.array is None:
            self.aliases.append(twin)
        return twin

    # ------------------------------------------------------------------ running

    def overflow(self) -> None:
        """The bound on pending outputs is reached: cut here if the program has come round, or is far too long."""
        from torchgrad_jax.runtime.program import run_pending

        count = len(self.values)
        if modes.execution == "eager":
            run_pending(self, "eager")
        elif count >= HARD_LIMIT or self.step.signature is self.step.first:  # a loop that nobody looks at came round
            run_pending(self, "bound")
        else:
            self.limit = count + 1

    def flush(self, reason: str) -> None:
        """Run what is pending in this thread."""
        from torchgrad_jax.runtime.program import run_pending

        if self.step.parent is not None:
            run_pending(self, reason)

    def force(self, value: Value) -> None:
        """Make a Value of this recorder concrete, whichever thread asks."""
        from torchgrad_jax.runtime.program import run_copy

        if threading.get_ident() == self.thread:
            self.flush("look")
        else:
            run_copy(self, value)

    def switch_device(self, where: device) -> None:
        """What is recorded from here on runs on `where`."""
        self.flush("device")
        self.device = where
        self.clear()


@cache
def _array_class() -> type:
    """The class of JAX's concrete arrays, to tell them from tracers at the price of one comparison."""
    import jax.numpy as jnp

    return type(jnp.zeros(()))


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.recorder = Recorder()


per_thread = _PerThread()


def recorder() -> Recorder:
    """The calling thread's recorder."""
    return per_thread.recorder


# ---------------------------------------------------------------------- the hot path
# One and two operands are written out: they are nearly all of a training step, and a loop over operands costs as much
# again as the rest of the call.


def record1(rec: Recorder, bop: BoundOp, a: Value) -> Value:
    """Record a single-output operation of one Value."""
    slot = a.slot if a.epoch is rec.epoch else rec.enter(a)
    key = (bop, slot)
    step = rec.step.next.get(key)
    if step is None:
        step = rec.extend(bop, (slot,), key, (a,))
    rec.step = step
    value = _new(Value)
    value.aval = step.aval
    value.array = None
    value.slot = step.slot
    value.epoch = rec.epoch
    value.counter = None
    values = rec.values
    values.append(value)
    if len(values) >= rec.limit or step.signature.check is not None:
        _after(rec, step, (a,))
    return value


def record2(rec: Recorder, bop: BoundOp, a: Value, b: Any) -> Value:
    """Record a single-output operation of a Value and a second operand: a Value or a Python number."""
    slot_a = a.slot if a.epoch is rec.epoch else rec.enter(a)
    kind = type(b)
    slot_b = (b.slot if b.epoch is rec.epoch else rec.enter(b)) if kind is Value else kind
    key = (bop, slot_a, slot_b)
    step = rec.step.next.get(key)
    if step is None:
        step = rec.extend(bop, (slot_a, slot_b), key, (a, b))
    rec.step = step
    if kind is not Value:  # after the last thing that can fail: numbers and steps stay in line
        rec.number(b)
    value = _new(Value)
    value.aval = step.aval
    value.array = None
    value.slot = step.slot
    value.epoch = rec.epoch
    value.counter = None
    values = rec.values
    values.append(value)
    if len(values) >= rec.limit or step.signature.check is not None:
        _after(rec, step, (a, b))
    return value


def record(rec: Recorder, bop: BoundOp, operands: tuple[Any, ...]) -> Any:
    """Record an operation of any operands. Returns its Value, or the tuple of its Values if it has several outputs."""
    epoch = rec.epoch
    slots = [o.slot if type(o) is Value and o.epoch is epoch else rec.operand(o) for o in operands]
    key = (bop, *slots)
    step = rec.step.next.get(key)
    if step is None:
        step = rec.extend(bop, tuple(slots), key, operands)
    if step.numbers:  # after the last thing that can fail: numbers and steps stay in line
        for o in operands:
            if type(o) is not Value:
                rec.number(o)
    rec.step = step
    aval = step.aval
    values = rec.values
    if type(aval) is Aval:
        value = _new(Value)
        value.aval, value.array, value.slot, value.epoch, value.counter = aval, None, step.slot, epoch, None
        values.append(value)
        result = value
    else:
        slot = step.slot
        made = []
        for one in aval:
            value = _new(Value)
            value.aval, value.array, value.slot, value.epoch, value.counter = one, None, slot, epoch, None
            slot += 1
            made.append(value)
        values.extend(made)
        result = tuple(made)
    if len(values) >= rec.limit or step.signature.check is not None:
        _after(rec, step, operands)
    return result


def _after(rec: Recorder, step: Step, operands: tuple[Any, ...]) -> None:
    rec.last = step.signature
    if step.signature.check is not None:
        from torchgrad_jax.runtime.checks import note_check

        note_check(rec, step, operands)
    if len(rec.values) >= rec.limit:
        rec.overflow()


# How many references `getrefcount` sees of a Value that only a recorder's list holds. Measured, not assumed: newer
# interpreters count borrowed references differently.
UNHELD = next(iter(map(getrefcount, [_new(Value)])))
