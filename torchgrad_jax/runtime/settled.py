"""Running what is pending, and the short way of a program about which nothing is left to be decided, or not for so many runs: it is interpreted, or
compiled.

Most runs are of such programs. Where anything is out of the ordinary (somebody watches, a mode is on, an input may be given away, a result is still
on its way) nothing is done here, and the long way is taken, which is `program.run_epoch`. This is compiled where there is a compiler
(`torchgrad_jax/_typed`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from torchgrad_jax.runtime import keeping, modes
from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.baseline import carry_out, quiet_context, quietly, within
from torchgrad_jax.runtime.baseline.copying import own
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.native import arrays as of_c
from torchgrad_jax.runtime.observing import observer
from torchgrad_jax.runtime.pruning import prune
from torchgrad_jax.runtime.recorder import TURNED, Recorder, roots
from torchgrad_jax.runtime.recording import holding
from torchgrad_jax.runtime.recording.epoch import Epoch, running
from torchgrad_jax.runtime.recording.interrupts import from_outside
from torchgrad_jax.runtime.recovery import CheckFailed
from torchgrad_jax.runtime.tiers import COMPILED, INTERPRETED, cost_of, lasts_for
from torchgrad_jax.runtime.worker import Promised

# XLA's CPU compiler orders nothing by itself and so copies what it was given and still reads: giving away small inputs
# costs more (6 % of a step with 1 MiB weights) than the memory is worth.
DONATE_BYTES = 1 << 22
# A loop may take so many programs more for one turn.
LOOP_PROGRAMS = 3
# What is asked of at each run, without asking the modules for their attributes.
_modes, _observed, _kept = vars(modes), vars(observer), vars(keeping)
_ndarray, _scalar, _asarray = np.ndarray, np.generic, np.asarray


class Settled:
    """A program that is run the same way for as long as the modes are the usual ones, or so many more times if any are `left`, each of which has a
    `cost`; and what that takes.

    alive: which of the results that were recorded are held, a byte for each; slots: those of the program's outputs. inputs: which of its epoch's it
    reads. compiled: whether it is, and then whether it takes `long`. Else what the interpreter carries out (`baseline.places`): calls, template, the
    places of the outputs and of the checks' outcomes, each number that is read by its place among the epoch's and its NumPy class, and whether any of
    it `multiplies` matrices. said: by its place in the template each number of the last run, and what it became.
    """

    __slots__ = (
        "program", "alive", "slots", "inputs", "compiled", "long", "calls", "template", "places", "checks", "numbers", "said", "multiplies", "left",
        "cost",
    )  # fmt: skip

    def __init__(self, program: Any, alive: bytes) -> None:
        self.program, self.alive = program, alive
        self.slots, self.inputs = list(program.slots), list(program.inputs)
        self.compiled = self.long = self.multiplies = False
        self.left, self.cost = -1, 0.0
        self.calls: list[Any] = []
        self.template: list[Any] = []
        self.places: list[int] = []
        self.checks: list[int] = []
        self.numbers: list[Any] = []
        self.said: list[Any] = []


def settled(program: Any, alive: bytes) -> Settled | None:
    """How a program that has just been run will be run from now on, if that is decided."""
    form = program.form
    if program.device is not CPU or program.donated or not _is_usual():
        return None
    found = Settled(program, alive)
    if program.tier == COMPILED:
        found.compiled, found.long = True, program.is_long()
        return found if form.ahead else None
    interpreted = program.interpreted
    if program.tier != INTERPRETED or interpreted is None:
        return None
    ready = interpreted.ready()
    if ready is None:
        return None
    if not program.small:
        found.left, found.cost = lasts_for(program), cost_of(program)
        if found.left == 0:
            return None
    (found.calls, found.template, places, makers), found.multiplies = ready, interpreted.multiplies
    found.places, found.checks = places[: len(found.slots)], places[len(found.slots) :]
    found.numbers = list(zip(interpreted.numbers, makers, strict=True))
    found.said = [None] * (len(found.inputs) + len(found.numbers))
    return found


def _is_usual() -> bool:
    return (
        not _observed["active"]
        and _modes["execution"] == "fused"
        and _modes["baseline"]
        and not _modes["same_tier_blocks"]
        and not _modes["without_xla"]
    )  # fmt: skip


def run_pending(rec: Recorder, reason: str) -> None:
    """Run the recorder's pending program, make its living Values concrete, and begin a new one.

    Whatever fails, nothing is lost: the epoch keeps what its results are computed from until they are there. Only what comes from outside,
    as KeyboardInterrupt or a time limit, is raised here; errors are told where what they befell is looked at.
    """
    if _kept["steps"] > _kept["step_limit"]:
        prune(roots, rec.epoch.step)
    for one in _observed["active"]:
        one.flushing(rec, reason)
    new, epoch = rec.new_epoch(), rec.epoch
    try:
        rec.epoch = new
        rec.turned &= ~TURNED  # a program that has just been cut need not be cut where the loop comes round
        outs = run_settled(rec, epoch, reason)
        if outs is None:
            running.decide(rec, epoch, reason)
        else:
            keep(epoch, outs)
    except CheckFailed:
        running.rescue(epoch)
    except BaseException as error:
        if not isinstance(error, Exception) or from_outside(error):
            if epoch.results:
                with suppress(CheckFailed):  # told at the next look
                    keep(epoch, epoch.results[0])
            raise
        counters.failed += 1
        if rec.epoch is epoch:  # it had not even begun
            rec.epoch = new
        running.rescue(epoch)
    finally:
        epoch.ended = rec.epoch is not epoch


def run_settled(rec: Recorder, epoch: Epoch, reason: str) -> Any:
    """Run what was recorded if it is settled: the outputs. None where the long way has to be taken, and then nothing has happened."""
    step, values = epoch.step, epoch.values
    found: Any = step.settled
    if found is None or found.left == 0 or epoch.largest >= DONATE_BYTES or len(values) != step.end or not _is_usual():
        return None
    alive = holding.held(values)
    if epoch.aliases:
        alive = holding.with_aliased(alive, epoch.aliases)
    if alive != found.alive:
        return None
    form = found.program.form
    function = form.function  # which another thread may let go of
    if found.compiled and (not form.ahead or (found.long and reason != "look")):
        return None
    arrays = _arrays(found, epoch)
    if arrays is None:
        return None
    totals = counters
    totals.recorded += len(values)
    totals.flushed += 1
    totals.settled += 1
    reasons = totals.reasons
    reasons[reason] = reasons.get(reason, 0) + 1
    rec.new_in_a_row = 0
    if found.left > 0:
        found.left -= 1
        form.spent += found.cost
        found.program.repeats = found.program.repeats + 1 if step in rec.recent else 0
    if not rec.recent or rec.recent[0] is not step:
        rec.recent = (step, *rec.recent[:LOOP_PROGRAMS])
    rec.rolling = False
    epoch.wanted = found.slots
    form.used = _kept["now"]
    found.program.seen += 1
    if not found.compiled:
        totals.interpreted += 1
        _interpret(rec, found, arrays)
        for place in found.checks:
            if arrays[place][0]:
                raise CheckFailed
        return [_owned(arrays[place]) for place in found.places]
    totals.ran += 1
    for array in arrays:
        if type(array) is _ndarray:
            return call_x64(function, *arrays)
    return function(*arrays)


def _interpret(rec: Recorder, found: Settled, arrays: list[Any]) -> None:
    """`quietly`, but for the context, which is the recorder's."""
    context = rec.context
    if context is None or found.multiplies:
        quietly(found.multiplies, carry_out, found.calls, arrays)
        rec.context = context or quiet_context()
        return
    rec.context = None
    try:
        within.carried_out(context, found.calls, arrays)
    finally:
        rec.context = context


def _owned(array: Any) -> Any:
    """`own`, which most results need not be asked all of."""
    if of_c.kept(array):
        return array
    return own(_asarray(array) if isinstance(array, _scalar) else array)


def _arrays(found: Settled, epoch: Epoch) -> list[Any] | None:
    """What a settled program is run of. None where some of that is still to be computed."""
    step, leaves = epoch.step, epoch.leaves
    if not found.compiled:
        arrays = list(found.template)
        i = 0
        for index in found.inputs:
            leaf = leaves[index]
            array = leaf.array
            if type(array) is Promised:
                return None
            arrays[i] = _asarray(array) if type(array) is not _ndarray else array
            i += 1
        for place, kind in found.numbers:
            number = epoch.numbers[place]
            said = found.said[i]
            if said is None or said[0] is not number:  # most are the program's own, as a learning rate
                said = found.said[i] = (number, kind(number))
            arrays[i] = said[1]
            i += 1
        return arrays
    for index in epoch.on_host:
        leaf = leaves[index]
        leaf.for_xla()
    arrays = [*found.program.kept(epoch.arrays_of_numbers())] if step.counts else []
    for index in found.inputs:
        leaf = leaves[index]
        array = leaf.array
        if type(array) is Promised:
            return None
        arrays.append(array)
    return arrays


def keep(epoch: Epoch, outs: Any) -> None:
    """Give a program's results to the Values that wait for them. CheckFailed if the one after them says so."""
    values, wanted = epoch.values, epoch.wanted or ()
    if len(outs) > len(wanted) and np.asarray(outs[-1])[0]:
        raise CheckFailed
    for i, slot in enumerate(wanted):
        value = values[slot]
        value.array = outs[i]
    for twin in epoch.aliases:
        twin.array = values[twin.slot].array
    epoch.finish()


running.run_pending = run_pending
