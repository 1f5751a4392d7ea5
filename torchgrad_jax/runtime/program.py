"""Running what is pending: which results are wanted, how the program is run, and what is kept for the next time."""

from __future__ import annotations

import time
from collections import Counter
from sys import getrefcount
from typing import Any

import numpy as np

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.checks import after_run
from torchgrad_jax.runtime.compiled import jitted, replay
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.device import CPU, put
from torchgrad_jax.runtime.interpreted import Interpreted
from torchgrad_jax.runtime.notices import compiling
from torchgrad_jax.runtime.recorder import TURNED, UNHELD, Recorder, Step
from torchgrad_jax.runtime.rolling import roll
from torchgrad_jax.runtime.structure import calls_to, inputs_of
from torchgrad_jax.runtime.tiers import COMPILED, INTERPRETED, ROLLED, Estimate, Form, tier_of
from torchgrad_jax.runtime.value import Value
from torchgrad_jax.runtime.worker import LONG, Promised, hand_over

# XLA's CPU compiler orders nothing by itself and so copies what it was given and still reads: giving away small inputs
# costs more (6 % of a step with 1 MiB weights) than the memory is worth.
DONATE_BYTES = 1 << 22
# From so many operations on a program is searched for what repeats in it.
LEAST_ROLLED = 40
# A loop may take so many programs more for one turn.
LOOP_PROGRAMS = 3
# How many Forms are kept of programs with loops.
MOST_FORMS = 1024

_above_unheld = UNHELD.__lt__


class Program:
    """A structure with its wanted outputs: how often it was met, what it costs, and its compiled form.

    repeats: how often in a row it was one of the last programs run: a loop is at work. tier: the one it was last run by. form: what is compiled of
    it alone; rolled, common: the program with loops for what repeats in it, and what is compiled of all that differ from it in how
    often those go round.
    """

    __slots__ = (
        "calls", "outputs", "slots", "inputs", "donated", "checked", "device", "seen", "repeats", "tier", "form", "rolled", "common",
        "_estimates", "_interpreted", "_stepped", "_numbers",
    )  # fmt: skip

    def __init__(self, step: Step | None, alive: bytes, donated: bytes, leaves: list[Value]) -> None:
        self.slots = [slot for slot, wanted in enumerate(alive) if wanted]
        self.calls, self.outputs = calls_to(step, self.slots)
        self.checked = any(c.signature.check is not None for c in self.calls)
        self.inputs = inputs_of(self.calls, self.outputs)
        self.device = next((a.device for c in self.calls for a in c.signature.avals), CPU)
        self.donated = self._donatable(donated, leaves) if any(donated) else set()
        self.seen, self.repeats, self.tier = 0, 0, INTERPRETED
        self._estimates: dict[bool, Estimate] = {}  # with the baseline tier and without
        self._interpreted: Interpreted | None = None
        self._stepped: Interpreted | None = None
        self._numbers: tuple[Any, list[Any] | None] = (None, None)
        self.form = Form()
        self.rolled = roll(self.calls, self.outputs, self.inputs) if len(self.calls) >= LEAST_ROLLED else None
        self.common = None if self.rolled is None else _common_form(self.rolled.key)

    def _donatable(self, donated: bytes, leaves: list[Value]) -> set[int]:
        """Those of the inputs that may be given away that some output can take: same shape and dtype, each output once."""
        avals = {c.slot + i: aval for c in self.calls for i, aval in enumerate(c.signature.avals)}
        room = Counter([avals[slot] for slot in self.outputs if slot in avals])
        chosen = set()
        for index in self.inputs:
            aval = leaves[index].aval
            if donated[index] and room[aval] > 0:
                room[aval] -= 1
                chosen.add(index)
        return chosen

    @property
    def estimate(self) -> Estimate:
        """What running it costs."""
        found = self._estimates.get(modes.baseline)
        if found is None:
            found = self._estimates[modes.baseline] = Estimate(self.calls, len(self.outputs))
        return found

    def interpret(self, numbers: list[np.ndarray], arrays: list[Any]) -> list[Any]:
        """Run it operation by operation."""
        by_number = {a.dtype.kind: a for a in numbers}
        if modes.execution == "eager" or not any(self.estimate.plans):
            if self._stepped is None:
                self._stepped = Interpreted(self.calls, [None] * len(self.calls), self.inputs, self.outputs)
            counters.stepped += 1
            return self._stepped(by_number, arrays)
        if self._interpreted is None:
            self._interpreted = Interpreted(self.calls, self.estimate.plans, self.inputs, self.outputs)
        counters.interpreted += 1
        return self._interpreted(by_number, arrays)

    def call(self, numbers: list[np.ndarray], arrays: list[Any], may_wait: bool) -> Any:
        """Run what is compiled of it alone, which is compiled now if it was not before. may_wait: in the other thread, if it takes long."""
        function = self.form.function
        counters.ran += 1
        if function is not None and may_wait and self.device is CPU and self.estimate.calling > LONG:
            return hand_over(function, [*self._kept(numbers), *arrays], len(self.outputs) + self.checked)
        if may_wait:
            arrays = [a.kept() if type(a) is Promised else a for a in arrays]
        if function is None:
            function = self.form.function = self._compiled([a.dtype.kind for a in numbers])
            return _first_call(function, [*numbers, *arrays], len(self.calls))
        return function(*self._kept(numbers), *arrays) if numbers else function(*arrays)

    def call_rolled(self, numbers: list[np.ndarray], arrays: list[Any]) -> Any:
        """Run what is compiled of it and of all that go round other times."""
        assert self.rolled is not None and self.common is not None
        rolled, form = self.rolled, self.common
        counters.ran += 1
        given = [rolled.sizes, *rolled.arguments([*numbers, *[a.kept() if type(a) is Promised else a for a in arrays]])]
        if form.function is None:
            form.function = jitted(rolled.function(), self.calls, self.device, quickly=True)
            return rolled.results(_first_call(form.function, given, rolled.compiling))
        return rolled.results(form.function(*given))

    def _compiled(self, kinds: list[str]) -> Any:
        donate = tuple([len(kinds) + i for i, index in enumerate(self.inputs) if index in self.donated])
        return jitted(replay(self.calls, self.inputs, self.outputs, kinds), self.calls, self.device, donate)

    def _kept(self, numbers: list[np.ndarray]) -> list[Any]:
        """The arrays of numbers. Where they are the last run's they are kept on the device: an array from the host costs a program 7 us each time."""
        if not numbers:
            return numbers
        now = [a.tobytes() for a in numbers]  # the bytes tell 0.0 from -0.0 and know a nan again
        last, arrays = self._numbers
        if last != now:
            self._numbers = now, None
            return numbers
        if arrays is None:
            arrays = [put(a, self.device) for a in numbers]
            self._numbers = now, arrays
        return arrays


_forms: dict[Any, Form] = {}


def _common_form(key: Any) -> Form:
    """The one Form of all programs that differ in how often their loops go round, which now are one more."""
    if len(_forms) >= MOST_FORMS:  # structures that never come back must not pile up
        _forms.clear()
    found = _forms.setdefault(key, Form())
    found.members += 1
    return found


def _first_call(function: Any, arguments: list[Any], operations: int) -> Any:
    counters.compiled += 1
    with compiling(operations):
        return function(*arguments)


def run_pending(rec: Recorder, reason: str) -> None:
    """Run the recorder's pending program, make its living Values concrete, and begin a new one."""
    step, values, leaves = rec.step, rec.values, rec.leaves
    floats, ints, complexes, aliases, checks, epoch = rec.floats, rec.ints, rec.complexes, rec.aliases, rec.checks, rec.epoch
    nbytes, on_host = rec.bytes, rec.on_host
    rec.clear()
    rec.turned &= ~TURNED  # a program that has just been cut need not be cut where the loop comes round
    # A Value that only our list holds is out of everybody's reach: its operation need not have a result.
    alive = bytes(map(_above_unheld, map(getrefcount, values)))
    if aliases:
        alive = _with_aliases(alive, aliases)
    counters.recorded += len(values)
    counters.flushed += 1
    counters.reasons[reason] += 1
    if not (any(alive) or checks):
        return
    donated = _only_ours(leaves) if nbytes >= DONATE_BYTES or rec.device is not CPU else bytes(len(leaves))
    programs = step.programs
    if programs is None:
        programs = step.programs = {}
    program = programs.get((alive, donated))
    if program is None:
        program = programs[alive, donated] = Program(step, alive, donated, leaves)
        rec.changing.met(program.calls)
    else:
        rec.changing.repeated()
    program.repeats = program.repeats + 1 if step in rec.recent else 0
    rec.recent = (step, *rec.recent[:LOOP_PROGRAMS])
    try:
        outs = _run(program, _numbers(floats, ints, complexes), leaves, on_host, reason != "look")
    except BaseException as error:
        _fail(values, alive, aliases, epoch, error)
        raise
    rec.rolling = program.tier == ROLLED
    for slot, out in zip(program.slots, outs, strict=False):
        values[slot].array = out
    for twin in aliases:
        twin.array = values[twin.slot].array
    if program.checked:
        after_run(rec, outs[-1], checks)


def _run(program: Program, numbers: list[np.ndarray], leaves: list[Value], on_host: list[Value], may_wait: bool) -> Any:
    """Run a program by the tier that is its own by now. Empties `leaves`. may_wait: nobody is about to look at its results."""
    tier = tier_of(program)
    program.seen += 1
    if on_host and tier != INTERPRETED:
        for value in on_host:  # used before, or a result: where XLA reads it, it stays on the device from then on
            if type(value.array) is np.ndarray:
                value.array = put(value.array, value.aval.device)
    arrays = [leaves[i].array for i in program.inputs]
    if tier == INTERPRETED or not may_wait:
        arrays = [leaves[i].concrete() if type(a) is Promised else a for i, a in zip(program.inputs, arrays, strict=True)]
    leaves.clear()
    if tier == COMPILED:
        return program.call(numbers, arrays, may_wait)
    return program.call_rolled(numbers, arrays) if tier == ROLLED else program.interpret(numbers, arrays)


def run_copy(rec: Recorder, wanted: Value) -> None:
    """Make one Value of another thread's pending program concrete without touching that thread's recorder.

    The lists only grow and `step` is set last, so `step` read first is consistent with what the lists begin with.
    """
    with rec.lock:
        step, epoch = rec.step, rec.epoch
        leaves, floats, ints, complexes = rec.leaves[:], rec.floats[:], rec.ints[:], rec.complexes[:]
        if wanted.array is not None:
            return
        if wanted.epoch is not epoch:  # flushed meanwhile by its own thread, which is about to set the array
            pending = wanted.epoch
            while wanted.array is None:
                if wanted.epoch is not pending:  # its program failed
                    wanted.concrete()
                time.sleep(1e-4)
            return
        alive = bytes(slot == wanted.slot for slot in range(step.end))
        program = Program(step, alive, bytes(len(leaves)), leaves)
        wanted.array = program.interpret(_numbers(floats, ints, complexes), [leaves[i].concrete() for i in program.inputs])[0]


# ---------------------------------------------------------------------- what is wanted, what may be given away


def _with_aliases(alive: bytes, aliases: list[Value]) -> bytes:
    marked = bytearray(alive)
    counts = list(map(getrefcount, aliases))  # before anything else refers to them
    held = [twin for twin, count in zip(aliases, counts, strict=True) if count > UNHELD]
    for twin in held:
        marked[twin.slot] = 1
    aliases[:] = held
    return bytes(marked)


def _only_ours(leaves: list[Value]) -> bytes:
    """Which inputs nobody but the pending program holds: their buffers may become outputs."""
    held = bytearray(map(_above_unheld, map(getrefcount, leaves)))
    for i, flag in enumerate(held):
        aval = leaves[i].aval
        if flag or type(leaves[i].array) is np.ndarray or (aval.nbytes < DONATE_BYTES and aval.device is CPU):
            held[i] = 0
        else:  # 2: the Value's slot and the argument of getrefcount.
            held[i] = getrefcount(leaves[i].array) <= 2
    return bytes(held)


def _numbers(floats: list[float], ints: list[int], complexes: list[complex]) -> list[np.ndarray]:
    """A program's Python numbers, one array for each of their dtypes."""
    return [np.array(n, t) for n, t in ((floats, np.float64), (ints, np.int64), (complexes, np.complex128)) if n]


# ---------------------------------------------------------------------- failure


class _Failed:
    """Stands for the recorder of Values whose program failed: looking at one raises what went wrong."""

    def __init__(self, error: BaseException) -> None:
        self.recorder = self
        self.error = error

    def force(self, value: Value) -> None:
        """Raise the program's error again."""
        raise RuntimeError(f"the program that makes this tensor failed: {self.error}") from self.error


def _fail(values: list[Value], alive: bytes, aliases: list[Value], epoch: Any, error: BaseException) -> None:
    failed: Any = _Failed(error)
    for value in [v for v, flag in zip(values, alive, strict=True) if flag] + aliases:
        value.epoch = failed
