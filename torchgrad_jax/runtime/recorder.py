"""The Recorder appends operations to the program that is pending in its thread; Steps are the programs seen so far.

Programs are kept as a tree: a Step is one operation (or one more input) after the Steps before it, so the Step that
a program ends at identifies its whole structure, and recording an operation that was recorded at this place before
is one dict lookup that also yields its output avals. This is what makes a loop cheap from its second turn on.
"""

from __future__ import annotations

import threading
import types
from typing import Any
from weakref import ref

import numpy as np

from torchgrad_jax.runtime import keeping, modes
from torchgrad_jax.runtime._jax_compat import array_class
from torchgrad_jax.runtime.device import CPU, device
from torchgrad_jax.runtime.elsewhere import DeviceChange, Elsewhere, TracedInput
from torchgrad_jax.runtime.flags import Flags
from torchgrad_jax.runtime.notices import Changing
from torchgrad_jax.runtime.observing import observer
from torchgrad_jax.runtime.operation import BoundOp, signature
from torchgrad_jax.runtime.recording import making
from torchgrad_jax.runtime.recording.cutting import LEAST, Cut, Cutting
from torchgrad_jax.runtime.recording.epoch import Epoch, Failure, running
from torchgrad_jax.runtime.recording.expecting import error_is_expected
from torchgrad_jax.runtime.recording.fields import SignatureFields
from torchgrad_jax.runtime.recording.step import BEYOND, Step
from torchgrad_jax.runtime.user_code import innermost_frame, user_line
from torchgrad_jax.runtime.value import Aval, Value, is_tracer

# Past SOFT_LIMIT pending outputs (or bytes of inputs) a program is cut where it comes back to its first operation,
# past HARD_LIMIT at once.
SOFT_LIMIT = 2_000
HARD_LIMIT = 6_000
SOFT_BYTES = 1 << 29
# The Python integers that can be operands.
LEAST_INT, MOST_INT, MOST_UNSIGNED = -(2**63), 2**63 - 1, 2**64 - 1
# The bits of Recorder.turned.
TURNED, LOOK = 1, 2
# The bits of Recorder.rare that anomaly mode has, above what is counted there: that it is on, and what it looks for NaN in.
ANOMALY, CHECK_NAN, CHECK_FORWARD = 1 << 28, 1 << 29, 1 << 30
_ANOMALY_BITS = ANOMALY | CHECK_NAN | CHECK_FORWARD
# The bit that autocast has, while `Flags.casting` is set.
AUTOCAST = 1 << 27


class LargeNumber(Exception):
    """A Python integer among the operands is none of int64."""


_modes, _ndarray = vars(modes), np.ndarray
roots: dict[device, Step] = {}


def root_of(where: device) -> Step:
    """Where the programs of a device begin."""
    found = roots.get(where)
    if found is None:
        found = roots[where] = Step(None, None, (), None, 0, 0)
    return found


class Recorder:
    """What is pending in one thread, and the flags that the layers above keep per thread.

    epoch: what is pending. grad_enabled: grad mode. rare: how many modes and other rarities are active in this thread; while any is, dispatch takes
    its long way; anomaly mode (`set_anomaly`) and autocast have bits of it. inference: inference mode; grad_enabled is off then. turned: what the
    next operation that extends a graph has to stop for, as bits: TURNED, a backward has finished, so it begins a new program; LOOK, an inference
    tensor was read, perhaps to be saved for backward.
    level: what carries out operations in place of plain recording, while something does; see `core/level.py`. flags: further modes.
    new_in_a_row: how many programs `changing` has met one after the other. cutting: finds where what is new of programs ends;
    None where they are not cut.
    rolling: whether the last program was run as one of many that differ in how often their loops go round.
    context: in which NumPy warns of nothing; None while it is in use, and until there is one. root: where programs begin on `device`.
    writes: the operations that write, in order and each with its operands, while somebody asks for them; None while nobody does.
    """

    __slots__ = (
        "epoch", "device", "thread", "turned", "grad_enabled", "inference", "rare", "sequence", "level", "flags", "recent", "changing", "cutting",
        "new_in_a_row", "rolling", "context", "root", "writes", "__weakref__",
    )  # fmt: skip
    # Whether nobody is told of a backward pass that fails: it is only tried.
    quiet = False

    def __init__(self) -> None:
        self.device = CPU
        self.root = root_of(CPU)
        self.thread = threading.get_ident()
        self.turned = 0
        self.rolling = False
        self.context: Any = None
        self.grad_enabled = True
        self.inference = False
        self.rare = modes.anomaly
        self.sequence = 0
        self.level: Any = None
        self.flags = Flags()
        self.recent: tuple[Step, ...] = ()  # where the last programs ended
        self.changing = Changing()
        self.cutting: Cutting | None = Cutting()
        self.new_in_a_row = 0
        self.writes: list[tuple[Any, tuple[Any, ...]]] | None = None
        self.begin()

    def new_epoch(self) -> Epoch:
        """An empty program."""
        return Epoch(self, self.root, 1 if _modes["execution"] == "eager" else SOFT_LIMIT)

    def begin(self) -> None:
        """Begin an empty program."""
        self.epoch = self.new_epoch()

    # ------------------------------------------------------------------ recording

    def enter(self, value: Value) -> int:
        """The slot of `value`, which is not of this program so far: it becomes an input of it."""
        epoch = self.epoch
        if epoch.foreign and (slot := epoch.foreign.get(value)) is not None:
            return slot
        array = value.array
        if array is None:
            array = value.concrete()
        aval = value.aval
        kind = type(array)
        used_on_host = kind is _ndarray and value.epoch is not None
        if kind is not _ndarray and kind is not array_class and is_tracer(array):
            raise TracedInput
        if aval.device is not self.device:
            raise DeviceChange
        before = epoch.step
        step = before.last
        if step is None or step.aval is not aval or step.signature is not None:
            step = before.after(aval)
            if step is None:
                step = self._add(before, aval, Step(before, None, (), aval, -1 - before.inputs, before.end))
            before.last = step
        slot = step.slot
        if epoch.step is not before or self.epoch is not epoch:  # code that ran in between has recorded
            return self.enter(value)
        epoch.leaves[-1 - slot] = value
        if used_on_host:
            epoch.note_on_host(-1 - slot)
        epoch.step = step
        if epoch.bytes > SOFT_BYTES:
            epoch.limit = min(epoch.limit, before.end + 1)
        epoch.bytes += aval.nbytes
        epoch.largest = max(epoch.largest, aval.nbytes)
        # No call in between: two threads may enter one fresh Value at the same time.
        owner = value.epoch
        if owner is None or owner.recorder is self:
            value.slot, value.epoch = slot, epoch
        else:  # another thread reads `slot` and `epoch` without a lock: they stay its own
            epoch.note_foreign(value, slot)
        return slot

    def extend(self, before: Step, bop: BoundOp, key: tuple[Any, ...], operands: tuple[Any, ...]) -> Step:
        """The Step of an operation that was not recorded at this place before."""
        specs = tuple([o.aval if type(o) is Value else type(o) for o in operands])
        found: Any = bop.signatures.get(specs)
        sig: SignatureFields = signature(bop, specs) if found is None else found
        avals = sig.avals
        end = before.end + len(avals)
        aval = avals[0] if sig.single else avals
        step: Step = making.step(Step)
        step.begin(before, sig, key[1:], aval, before.end, end)
        step.bop = bop  # that of the Signature may be an equal one
        step = self._add(before, key, step)
        if sig.cut is not None and self.cutting is not None and before.first is not None and sig.cut.pays:
            last: Any = before
            while last.signature is None:
                last = last.parent
            if last.end >= LEAST:  # where it is a beginning of many others these would be cut, too
                last.cut, last.due = sig.cut, max(last.due, BEYOND)
            self.cut(sig.cut)  # whoever records finds that the program is another one, and records in that
        return step

    def _add(self, before: Step, key: Any, step: Step) -> Step:
        keeping.steps += 1
        if observer.active:
            step.line = user_line()
        return before.follow(key, step)

    def operand(self, operand: Any) -> Any:
        """What stands in a key for an operand that is not of this program so far: a new input's slot, a number's type."""
        if type(operand) is Value:
            return self.enter(operand)
        if type(operand) is int and not LEAST_INT <= operand <= MOST_INT:
            raise LargeNumber
        return type(operand)

    def call(self, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Any]:
        """Record an operation on Values and numbers, or carry it out where it belongs. Its Values, and its Signature."""
        try:
            outs = record(self, bound, values)
            return outs, (outs if type(outs) is Value else outs[0]).signature
        except Elsewhere as place:
            return place.call(self, bound, values)

    def alias(self, value: Value) -> Value:
        """Another Value of the same content: what a copy is when arrays are immutable."""
        epoch = self.epoch
        if value.array is None and value.epoch is not epoch:
            value.concrete()
        twin = Value()
        twin.aval, twin.array, twin.slot, twin.epoch = value.aval, value.array, value.slot, value.epoch
        twin.counter, twin.version = None, 0
        if twin.array is None:
            if self.epoch is not epoch:  # code that ran in between has looked
                return self.alias(value)
            epoch.note_alias(twin)
        return twin

    # ------------------------------------------------------------------ running

    def overflow(self) -> None:
        """The bound on pending outputs is reached: cut here if the program has come round, or is far too long."""
        epoch = self.epoch
        count = epoch.step.end
        if modes.execution == "eager":
            running.run_pending(self, "eager")
            failed = next((f for f in (epoch.outcomes or {}).values() if isinstance(f, Failure)), None)
            if failed is not None:
                raise failed.error()
        elif count < SOFT_LIMIT and epoch.bytes <= SOFT_BYTES:  # what it was cut before, and was known, ends
            running.run_pending(self, "cut")
        elif count >= HARD_LIMIT or epoch.step.signature is epoch.step.first:  # a loop that nobody looks at came round
            running.run_pending(self, "bound")
        else:
            epoch.limit = count + 1

    def flush(self, reason: str) -> None:
        """Run what is pending in this thread."""
        if self.epoch.step.parent is not None:
            running.run_pending(self, reason)

    def cut(self, cut: Cut) -> None:
        """Run what is pending, as what comes next is known; that is run by itself."""
        self.flush("cut")
        self.epoch.limit = min(self.epoch.limit, cut.outputs)

    def switch_device(self, where: device) -> None:
        """What is recorded from here on runs on `where`."""
        self.flush("device")
        self.device, self.root = where, root_of(where)
        self.begin()


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.recorder = Recorder()
        _of_threads.append(ref(self.recorder, _of_threads.remove))
        self.recorder.rare = modes.anomaly  # it may have been set in between


# The recorders of all threads, for what is set for the whole process.
_of_threads: list[ref[Recorder]] = []
per_thread = _PerThread()


def recorder() -> Recorder:
    """The calling thread's recorder."""
    return per_thread.recorder


# The classes of functions: Python's own, and that of compiled modules'.
FUNCTIONS: Any = (types.FunctionType, type(recorder))


def set_anomaly(bits: int) -> None:
    """Turn anomaly mode on or off, for all threads. bits: ANOMALY and what else it looks for, or 0.

    A thread may be in a block that will put back what its `rare` was before: `anomaly_of` sets it right.
    """
    modes.anomaly = bits
    for rec in {*[found() for found in tuple(_of_threads)], per_thread.recorder}:
        if rec is not None:
            rec.rare = rec.rare & ~_ANOMALY_BITS | bits


def anomaly_of(rec: Recorder) -> int:
    """The bits of anomaly mode, for a thread that begins a backward pass or leaves a transform."""
    if type(rec) is Recorder and rec.rare & _ANOMALY_BITS != modes.anomaly:
        rec.rare = rec.rare & ~_ANOMALY_BITS | modes.anomaly
    return rec.rare & _ANOMALY_BITS


def settle_autocast(rec: Recorder) -> None:
    """Let a recorder's `rare` have the bit of autocast if that is on: after its `rare` was put back to what it was before."""
    rec.rare = rec.rare & ~AUTOCAST if rec.flags.casting is None else rec.rare | AUTOCAST


def other_modes(rec: Recorder) -> int:
    """How many modes and other rarities are active in a thread beside those that have bits of their own: anomaly mode and autocast."""
    return rec.rare & (AUTOCAST - 1)


# ---------------------------------------------------------------------- recording
#
# Any call may let other code run, which may record: what is recorded has its place once `step` is set, and between the last check that nothing
# was recorded meanwhile and that line there is no call. For one and two operands this is written out in `core/hot.py`.


def record(rec: Recorder, bop: BoundOp, operands: tuple[Any, ...]) -> Any:
    """Record an operation of any operands. Returns its Value, or the tuple of its Values if it has several outputs."""
    epoch = rec.epoch
    try:
        if len(operands) == 2:
            a, b = operands
            args: tuple[Any, ...] = (
                a.slot if type(a) is Value and a.epoch is epoch else rec.operand(a),
                b.slot if type(b) is Value and b.epoch is epoch else float if type(b) is float else rec.operand(b),
            )
        else:
            args = tuple([float if type(o) is float else o.slot if type(o) is Value and o.epoch is epoch else rec.operand(o) for o in operands])
    except LargeNumber:
        return record(rec, bop, _without_large(operands))
    before = epoch.step
    step = before.last
    if step is None or step.bop is not bop or step.args != args:
        key = (bop, *args)
        step = before.after(key)
        if step is None:
            step = rec.extend(before, bop, key, operands)
        before.last = step
    if step.several:
        return _record_several(rec, epoch, before, step, bop, operands)
    value = making.value(Value)
    value.aval = step.aval
    value.array = None
    value.slot = slot = step.slot
    value.epoch = epoch
    value.counter = None
    value.signature = step.signature
    values = epoch.values
    if epoch.step is not before or rec.epoch is not epoch:
        return record(rec, bop, operands)
    if step.numbers:
        epoch.numbers[step.numbers[0]] = operands[step.numbered]
    values[slot], epoch.step = value, step
    if step.due >= epoch.limit:
        after(rec, epoch, step)
    return value


def call_values(bound: Any, values: tuple[Any, ...]) -> Any:
    """`Recorder.call` in the calling thread's recorder, without the Signature."""
    rec = per_thread.recorder
    try:
        return record(rec, bound, values)
    except Elsewhere as place:
        return place.call(rec, bound, values)[0]


def _record_several(rec: Recorder, epoch: Epoch, before: Step, step: Step, bop: BoundOp, operands: tuple[Any, ...]) -> Any:
    """`record` for an operation of several outputs or numbers. What it leaves where it does not come to its end is overwritten."""
    made = []
    slot, sig, avals = step.slot, step.signature, step.aval
    single = type(avals) is Aval
    for aval in (avals,) if single else avals:
        value = making.value(Value)
        value.aval = aval
        value.array = None
        value.slot = slot
        value.epoch = epoch
        value.counter = None
        value.signature = sig
        slot += 1
        made.append(value)
    if step.numbers and epoch.step is before and rec.epoch is epoch:
        numbers, places, i = epoch.numbers, step.numbers, 0
        for o in operands:
            if type(o) is not Value:
                numbers[places[i]] = o
                i += 1
    slot, values = step.slot, epoch.values
    for value in made:
        if epoch.step is not before or rec.epoch is not epoch:
            return record(rec, bop, operands)
        values[slot] = value
        slot += 1
    if epoch.step is not before or rec.epoch is not epoch:
        return record(rec, bop, operands)
    epoch.step = step
    if step.due >= epoch.limit:
        after(rec, epoch, step)
    return made[0] if single else tuple(made)


def after(rec: Recorder, epoch: Epoch, step: Step) -> None:
    """What the record of a step that is `due` goes on to: its check is noted, the program is cut, or both."""
    if step.signature.check is not None:
        _note_check(epoch, step)
    if rec.epoch.step.end >= rec.epoch.limit:
        rec.overflow()
    elif step.cut is not None and rec.epoch.step is step and step.cut.pays:
        rec.cut(step.cut)


def _note_check(epoch: Epoch, step: Step) -> None:
    """Remember the user's line of an operation that checks values. Where checks are made at once, or an error is expected, run it and raise what it
    finds."""
    rec, frame = epoch.recorder, innermost_frame()
    if rec.epoch is epoch:  # else code that ran in between has looked
        epoch.note_line(step.slot, None if frame is None else (frame.f_code.co_filename, frame.f_lineno))
    if modes.checks == "now" or modes.execution == "eager" or error_is_expected(getattr(step.signature.check, "often", False), frame):
        if rec.epoch is epoch:
            rec.flush("check")
        if epoch.first_failure is not None:
            raise epoch.first_failure.error()


def _without_large(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    kind = next((o.aval.dtype.kind for o in operands if type(o) is Value), "f")
    return tuple([o if type(o) is not int else large_int(o, kind) for o in operands])


def large_int(number: int, kind: str) -> int | float:
    """A Python integer beyond int64 as an operand beside a tensor of NumPy's `kind`. Like PyTorch, which takes it for an unsigned one, it wraps.
    OverflowError beyond 64 bits."""
    if LEAST_INT <= number <= MOST_INT:
        return number
    if number > MOST_UNSIGNED:
        raise OverflowError("int too big to convert")
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    return number - MOST_UNSIGNED - 1 if kind in "biu" else float(number)
