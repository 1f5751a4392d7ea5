"""Running what is pending: which results are wanted, how the program is run, and what is kept for the next time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import starmap
from sys import getrefcount
from typing import Any

import numpy as np

from torchgrad_jax.runtime import keeping, modes
from torchgrad_jax.runtime._jax_compat import call_x64, directly, import_dialects
from torchgrad_jax.runtime.baseline.cost import ChainCosts
from torchgrad_jax.runtime.compiling import freed_memory
from torchgrad_jax.runtime.compiling.compiled import ahead_of_time, jitted, replay, working_memory
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.device import CPU, put
from torchgrad_jax.runtime.interpreted import Interpreted
from torchgrad_jax.runtime.notices import compiling
from torchgrad_jax.runtime.observing import observer
from torchgrad_jax.runtime.observing.observer import COMPILING, COMPUTING, RUNNING, TRACING, timed
from torchgrad_jax.runtime.recorder import Recorder
from torchgrad_jax.runtime.recording.epoch import Epoch, Failure, running
from torchgrad_jax.runtime.recording.fields import ProgramFields
from torchgrad_jax.runtime.recording.holding import held, with_aliased
from torchgrad_jax.runtime.recording.step import Step
from torchgrad_jax.runtime.recovery import CheckFailed, recover
from torchgrad_jax.runtime.rolling.looped import Looped
from torchgrad_jax.runtime.rolling.roll import Rolled, roll
from torchgrad_jax.runtime.rolling.rolled import Plan
from torchgrad_jax.runtime.settled import DONATE_BYTES, LOOP_PROGRAMS, keep, settled
from torchgrad_jax.runtime.structure import calls_to, inputs_of
from torchgrad_jax.runtime.tiers import COMPILED, INTERPRETED, ROLLED, Form, tier_of
from torchgrad_jax.runtime.tiers.costs import Estimate
from torchgrad_jax.runtime.value import Value
from torchgrad_jax.runtime.worker import LONG, Promised, hand_over, undisturbed

# From so many operations on a program is searched for what repeats in it.
LEAST_ROLLED = 40
# How many Forms are kept of programs with loops.
MOST_FORMS = 1024
# After so many new programs in a row of whose loops there is no other length, only each so manieth is searched, until there is one, or it comes
# back twice: a search takes 1 to 8 us an operation. After more of them, fewer are.
IN_VAIN, SOME = 12, 4
LONG_IN_VAIN, FEW = 64, 16
# Where more than one in so many comes back of the programs of which little was kept, all is kept of new ones.
BACK = 8
# From so many lengths of a loop on the interpreter runs a program with its loops, so many times. Without them, as a list of calls of its own, it
# takes up to a third less, and making that takes as long as it gains in so many runs.
CHANGING, SELDOM = 2, 20
# What making the lists of its loops takes, for each operation that they hold, in operations that runs without them have more. So many of these are
# run first, as not every loop has many lengths.
MAKING = 20
# So many programs are met before any is searched: the first turns of a loop that makes its gradients and states are programs of their own.
FIRST = 2


class Program(ProgramFields):
    """A structure with its wanted outputs: how often it was met, what it costs, and its compiled form.

    repeats: how often in a row it was one of the last programs run: a loop is at work. tier: the one it was last run by. form: what is compiled of
    it alone; rolled, common: the program with loops for what repeats in it, and what is compiled of all that differ from it in how
    often those go round; lengths: what the interpreter has of these; searched: whether that was looked for.
    """

    __slots__ = (
        "calls", "outputs", "slots", "inputs", "donated", "checked", "device", "tier", "rolled", "common",
        "lengths", "searched", "interpreted", "_estimates", "_stepped", "_numbers",
    )  # fmt: skip

    def __init__(self, step: Step | None, alive: bytes, donated: bytes, leaves: dict[int, Value]) -> None:
        self.slots = [slot for slot, wanted in enumerate(alive) if wanted]
        self.calls, self.outputs = calls_to(step, self.slots)
        self.checked = any(c.signature.check is not None for c in self.calls)
        self.inputs = inputs_of(self.calls, self.outputs)
        self.device = next((a.device for c in self.calls for a in c.signature.avals), CPU)
        self.donated = self._donatable(donated, leaves) if any(donated) else frozenset()
        self.seen, self.repeats, self.tier = 0, 0, INTERPRETED
        self._estimates: dict[Any, Estimate] = {}  # with the baseline tier and without, where XLA runs what is large and where it must not
        self.interpreted: Interpreted | None = None
        self._stepped: Interpreted | None = None
        self._numbers: tuple[Any, list[Any] | None] = (None, None)
        self.form = Form()
        self.rolled: Rolled | None = None
        self.common: Form | None = None
        self.lengths: Lengths | None = None
        self.searched = len(self.calls) < LEAST_ROLLED
        if not self.searched and _forms.are_worth_a_search():
            self.search()

    def search(self) -> None:
        """Look for what repeats in it."""
        self.searched = True
        self.rolled = roll(self.calls, self.outputs, self.inputs)
        if self.rolled is not None:
            self.common, self.lengths = _forms.common(self.rolled.key), _forms.lengths(self.rolled.key)

    def _donatable(self, donated: bytes, leaves: dict[int, Value]) -> frozenset[int]:
        """Those of the inputs that may be given away that some output can take: same shape and dtype, each output once."""
        avals = {c.slot + i: aval for c in self.calls for i, aval in enumerate(c.signature.avals)}
        room = Counter([avals[slot] for slot in self.outputs if slot in avals])
        chosen = set()
        for index in self.inputs:
            aval = leaves[index].aval
            if donated[index] and room[aval] > 0:
                room[aval] -= 1
                chosen.add(index)
        return frozenset(chosen)

    @property
    def estimate(self) -> Estimate:
        """What running it costs."""
        key = modes.without_xla or modes.baseline
        found = self._estimates.get(key)
        if found is None:
            found = self._estimates[key] = Estimate(self.calls, len(self.outputs), self.device)
        return found

    @property
    def small(self) -> bool:
        """Whether calling what is compiled of it would take no less time than interpreting it, as one list of calls if it has become one."""
        estimate, merged = self.estimate, None if self.interpreted is None else self.interpreted.merged
        if merged is not None and merged.final and not estimate.refined:
            estimate.refine(merged.size, merged.costs)
        return estimate.small

    def interpret(self, numbers: list[np.ndarray], arrays: list[Any]) -> list[Any]:
        """Run it operation by operation."""
        by_number = {a.dtype.kind: a for a in numbers} if numbers else {}
        estimate = self.estimate
        if (modes.execution == "eager" and not modes.without_xla) or not estimate.planned:
            if self._stepped is None:
                self._stepped = Interpreted(self.calls, [None] * len(self.calls), self.inputs, self.outputs)
            counters.stepped += 1
            return self._stepped(by_number, arrays)
        if self.loops:
            return self._loop(numbers, arrays)
        if self.lengths is not None and self.rolled is not None:
            self.lengths.missed += len(self.calls) - self.rolled.compiling
        found = self.interpreted  # which another thread may let go of
        if found is None or (modes.without_xla and found.plans is not estimate.plans):
            found = self.interpreted = Interpreted(self.calls, estimate.plans, self.inputs, self.outputs)
        found.runs = max(found.runs, self.seen - 1)
        counters.interpreted += 1
        return found(by_number, arrays)

    @property
    def loops(self) -> bool:
        """Whether the interpreter runs it with its loops: it may take another number of turns each time, and has not come back often."""
        lengths = self.lengths
        if lengths is None or self.rolled is None or lengths.members < CHANGING or self.seen > SELDOM or self.device is not CPU:
            return False
        if (self.interpreted is not None and self.interpreted.merged is not None) or modes.same_tier_blocks or modes.without_xla:
            return False
        return lengths.looped is not None or lengths.missed >= MAKING * self.rolled.compiling

    def work(self) -> tuple[int, ChainCosts] | None:
        """What it is with its loops. See `Looped.work`."""
        assert self.rolled is not None and self.lengths is not None
        return None if self.lengths.looped is None else self.lengths.looped.work(self.rolled.sizes.tolist())

    def _loop(self, numbers: list[np.ndarray], arrays: list[Any]) -> list[Any]:
        """Run it with its loops by the interpreter."""
        assert self.rolled is not None and self.lengths is not None
        looped = self.lengths.looped
        if looped is None:
            plans = dict(zip([c.signature for c in self.calls], self.estimate.plans, strict=True))
            looped = self.lengths.looped = Looped(self.rolled.key, plans)
        counters.interpreted += 1
        found = self.rolled.interpreted(looped, [*numbers, *arrays])
        arrays.clear()
        return found

    def is_long(self) -> bool:
        """Whether a call of what is compiled of it takes so long that the other thread had better make it."""
        return self.form.function is not None and self.device is CPU and self.estimate.calling > LONG

    def call(self, numbers: list[np.ndarray], arrays: list[Any]) -> tuple[Any, Any]:
        """What is to be called to run what is compiled of it alone, which is compiled then if it was not before; and the arguments."""
        function = self.form.function
        counters.ran += 1
        if function is None:
            self.interpreted = None
            self.form.function = self._compiled([a.dtype.kind for a in numbers])
            if self.donated and self.device is CPU:  # what it takes is not known before it is run: no more than all its results together
                freed_memory.keep_for(sum([c.signature.nbytes for c in self.calls]))
            return _first_call, (self.form, [*numbers, *arrays], len(self.calls), self.device is CPU and not self.donated)
        return function, [*self.kept(numbers), *arrays] if numbers else arrays

    def call_rolled(self, numbers: list[np.ndarray], arrays: list[Any]) -> Any:
        """Run what is compiled of it and of all that go round other times."""
        assert self.rolled is not None and self.common is not None
        rolled, form = self.rolled, self.common
        counters.ran += 1
        self.interpreted = None
        given = [rolled.sizes, *rolled.arguments([*numbers, *arrays])]
        form.used, function = keeping.now, form.function
        if function is None:
            form.function = jitted(rolled.function(), self.calls, self.device)
            return rolled.results(call_x64(_first_call, form, given, rolled.compiling, self.device is CPU, True))
        return rolled.results(call_x64(function, *given))

    def _compiled(self, kinds: list[str]) -> Any:
        donate = tuple([len(kinds) + i for i, index in enumerate(self.inputs) if index in self.donated])
        return jitted(replay(self.calls, self.inputs, self.outputs, kinds), self.calls, self.device, donate)

    def kept(self, numbers: list[np.ndarray]) -> list[Any]:
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


class Once:
    """What is kept of a program that was met once, where most never come back: their calls would be looked through by each collection of garbage,
    which takes a seventh of the time of a loop whose structure changes. See Program for the fields."""

    __slots__ = ("form",)
    interpreted, seen = None, 0

    def __init__(self, form: Form) -> None:
        self.form = form


class Lengths:
    """What the interpreter has of programs that differ in how often their loops go round, and so in how much room their buffers have. members: how
    many these are; missed: how many operations less they would have had with loops; looped: what runs them so."""

    __slots__ = ("looped", "members", "missed")

    def __init__(self) -> None:
        self.looped: Looped | None = None
        self.members = self.missed = 0


class _Forms:
    """What is compiled of programs that differ in how often their loops go round. met: how many programs have been; in_vain: how many of them in a
    row, without another one. new_in_a_row: how many of any program. once: of how many little was kept; back: how many of these came back."""

    def __init__(self) -> None:
        self._known: dict[Any, Form] = {}
        self._lengths: dict[Any, Lengths] = {}
        self.met = self.in_vain = self.new_in_a_row = self.once = self.back = 0

    def are_worth_a_search(self) -> bool:
        """Whether a new program is searched for loops, which is one more so far."""
        self.met += 1
        self.in_vain += 1
        every = 1 if self.in_vain <= IN_VAIN else SOME if self.in_vain <= LONG_IN_VAIN else FEW
        return self.met > FIRST and self.in_vain % every == 0

    def is_worth_keeping(self, program: Program) -> bool:
        """Whether a new program is kept whole."""
        in_a_row = self.new_in_a_row if len(program.calls) < LEAST_ROLLED else self.in_vain
        return in_a_row <= IN_VAIN or self.back * BACK > self.once

    def common(self, key: Any) -> Form:
        """The one Form of all programs with these loops, which now are one more."""
        if len(self._known) >= MOST_FORMS:  # structures that never come back must not pile up
            self._known.clear()
            self._lengths.clear()
        found = self._known.setdefault(key, Form())
        found.members += 1
        if found.members > 1:
            self.in_vain = 0
        return found

    def lengths(self, key: Plan) -> Lengths:
        """What the interpreter has of programs with these loops, which now are one more."""
        found = self._lengths.setdefault(key._replace(capacity=0), Lengths())
        found.members += 1
        return found


_forms = _Forms()


def _first_call(form: Form, arguments: list[Any], operations: int, ahead: bool, quickly: bool = False) -> Any:
    counters.compiled += 1
    keeping.compiled(form, operations)
    with compiling(operations):
        # On accelerators JAX may have to compile it for several shardings. What is compiled ahead is called by Python, where a signal can raise
        # before its results are kept: not where its arguments are given away.
        if not ahead:
            with timed(COMPILING):
                import_dialects()
                return form.function(*arguments)
        function = ahead_of_time(form.function, arguments, quickly)
        freed_memory.keep_for(working_memory(function))
        outs = function(*arguments)
        form.function = directly(function)
        form.ahead = True
        return outs


def run_epoch(rec: Recorder, epoch: Epoch, reason: str) -> None:
    """Run what was recorded, by the tier that its program has by now."""
    step, values, leaves = epoch.step, epoch.values, epoch.leaves
    if len(values) > step.end:  # what an operation that was interrupted has left
        values = epoch.values = {slot: value for slot, value in values.items() if slot < step.end}
    # A Value that only our dict holds is out of everybody's reach: its operation need not have a result.
    alive = held(values)
    if epoch.aliases:
        alive = with_aliased(alive, epoch.aliases)
    counters.recorded += len(values)
    counters.flushed += 1
    counters.reasons[reason] = counters.reasons.get(reason, 0) + 1
    if not any(alive):
        epoch.finish()
        return
    donated = _only_ours(leaves) if epoch.largest >= DONATE_BYTES or rec.device is not CPU else bytes(len(leaves))
    programs = step.programs
    if programs is None:
        programs = step.programs = {}
    key = alive, donated
    program = programs.get(key)
    new = program is None
    if new or type(program) is Once:
        once = program
        with timed(TRACING):
            program = programs[key] = Program(step, alive, donated, leaves)
        if once is not None:
            program.form, program.seen = once.form, 1
            _forms.back += 1
    if new:
        keeping.now += 1
        _forms.new_in_a_row += 1
        rec.new_in_a_row = rec.changing.met(program.calls, rec.new_in_a_row)
        if rec.cutting is not None and (program.lengths is None or program.lengths.members < CHANGING):
            rec.cutting.met(step)
    else:
        rec.new_in_a_row = _forms.new_in_a_row = 0
        if not program.searched and program.seen > 1:
            program.search()
    if step.first is not None and step.first.cut is not None:
        step.first.cut.ran(step.end, new)
    program.form.used = keeping.now
    program.repeats = program.repeats + 1 if step in rec.recent else 0
    rec.recent = (step, *rec.recent[:LOOP_PROGRAMS])
    epoch.wanted = program.slots
    if observer.active:
        for one in observer.active:
            one.program(step, alive, program, new)
        with timed(RUNNING, program):
            _run(program, epoch.arrays_of_numbers(), epoch, reason != "look")
    else:
        _run(program, epoch.arrays_of_numbers(), epoch, reason != "look")
    rec.rolling = program.tier == ROLLED or program.loops
    step.settled = settled(program, alive)
    if new and program.tier == INTERPRETED and not observer.active and not _forms.is_worth_keeping(program):
        programs[key] = Once(program.form)
        _forms.once += 1


def _run(program: Program, numbers: list[np.ndarray], epoch: Epoch, may_wait: bool) -> None:
    """Run a program by the tier that is its own by now. may_wait: nobody is about to look at its results."""
    tier = tier_of(program)
    program.seen += 1
    leaves = epoch.leaves
    if epoch.on_host and tier != INTERPRETED:
        for index in epoch.on_host:
            leaves[index].for_xla()
    arrays = [leaves[i].array for i in program.inputs]
    if tier == COMPILED and may_wait and program.is_long():
        _promise(program, numbers, arrays, epoch)
        return
    kinds = set(map(type, arrays))
    if Promised in kinds:
        arrays = [leaves[i].concrete() for i in program.inputs]
    if tier == COMPILED:
        function, arguments = program.call(numbers, arrays)
        epoch.results = []
        # The arguments may have been given away: what it returns is in the epoch's list before anything can interrupt this.
        results = starmap(function, (arguments,))
        if program.form.ahead and np.ndarray not in (map(type, arguments) if numbers else kinds):
            epoch.results.extend(results)
        elif program.donated and (unmet := _unmet(program.form, function, arguments)) is not None:
            undisturbed(call_x64, epoch.results.extend, results)
            program.form.met |= {unmet}
        else:
            call_x64(epoch.results.extend, results)
        (outs,) = epoch.results
    else:
        function = None
        outs = program.call_rolled(numbers, arrays) if tier == ROLLED else program.interpret(numbers, arrays)
    keep(epoch, outs)
    if function is _first_call:
        freed_memory.give_back()


def _unmet(form: Form, function: Any, arguments: Sequence[Any]) -> Any:
    """What kinds of arguments these are, where a form that is given memory meets them for the first time: JAX comes back from that call by way of
    Python, where a signal could raise when the arguments are gone and the results nowhere yet. None where it has met them, and to observers, to whom
    what another thread computes is none of this one's."""
    kinds = (function is _first_call, *map(type, arguments))
    return None if kinds in form.met or observer.active else kinds


def _promise(program: Program, numbers: list[np.ndarray], arrays: list[Any], epoch: Epoch) -> None:
    """Let the other thread run a program, and its results stand for what it will make."""
    function = program.form.function
    if function is None:  # another thread has let go of it
        _run(program, numbers, epoch, False)
        return
    values = epoch.values
    promises = [Promised(epoch, slot) for slot in program.slots]
    for slot, promise in zip(program.slots, promises, strict=True):
        values[slot].array = promise
    for twin in epoch.aliases:
        twin.array = values[twin.slot].array
    epoch.values, epoch.aliases = {}, []
    checked, arguments = program.checked, [*program.kept(numbers), *arrays]

    def run(*given: Any) -> list[Any]:
        with timed(COMPUTING, program):
            outs = call_x64(function, *given)
        if checked and np.asarray(outs[-1])[0]:
            raise CheckFailed
        return outs

    counters.ran += 1
    hand_over(run, arguments, promises, epoch.finish)


def rescue(epoch: Epoch) -> None:
    """Compute what can be computed of a program that failed. What cannot is told at the next look at it."""
    if epoch.ended:  # all results were there already
        return
    with epoch.lock:
        recover(epoch)
    outcomes = epoch.outcomes or {}
    for value in [*epoch.values.values(), *epoch.aliases]:
        found = outcomes.get(value.slot)
        if value.array is None and not isinstance(found, Failure):
            value.array = found
    epoch.finish()


# ---------------------------------------------------------------------- what is wanted, what may be given away


def _only_ours(leaves: dict[int, Value]) -> bytes:
    """Which inputs nobody but the pending program holds: their buffers may become outputs."""
    ours = bytearray(held(leaves))
    for i, flag in enumerate(ours):
        aval = leaves[i].aval
        if flag or (aval.nbytes < DONATE_BYTES and aval.device is CPU) or getattr(leaves[i].array, "base", None) is not None:
            ours[i] = 0  # a view of NumPy's, too, is somebody's memory
        else:  # 2: the Value's slot and the argument of getrefcount.
            ours[i] = getrefcount(leaves[i].array) <= 2
    return bytes(ours)


running.decide, running.rescue = run_epoch, rescue
freed_memory.keep()  # before anything is interpreted
