"""Epoch: what was recorded between two runs of one recorder, and what has become of it.

Python may run other code at many places: signal handlers, finalizers, the garbage collector. What they record goes into the same epoch, and what
they raise ends a function between any two of its lines. So each of an epoch's results, inputs and numbers has its own place in a dict, and counts
only once the step that it belongs to has become the epoch's step: what was left behind by an operation that was interrupted is overwritten by the
next one. And an epoch keeps all that it takes to compute its results until they are there.
"""

from __future__ import annotations

import threading
import time
import weakref
from _thread import RLock  # `threading.RLock` is a function around it
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.runtime.recording.step import KINDS, places_of

# Where a program under way in another thread is waited for, this often, in seconds.
_POLL = 1e-4


class Running:
    """How what is recorded is run. The modules that do it put their functions here, for Epochs and Recorders, which they are made of.

    run_pending(recorder, reason): run the recorder's epoch; decide(recorder, epoch, reason): run one of which something is still to be decided;
    rescue(epoch): compute what can be computed of one that failed. recover(epoch, slot): compute a result of a program that did not come to its end.
    look_from_outside(epoch, value): compute a Value that is pending in another thread.
    """

    __slots__ = ("run_pending", "decide", "rescue", "recover", "look_from_outside")
    run_pending: Callable[[Any, str], None]
    decide: Callable[[Any, Epoch, str], None]
    rescue: Callable[[Epoch], None]
    recover: Callable[[Epoch, int], None]
    look_from_outside: Callable[[Epoch, Any], None]


running = Running()


class Failure:
    """Why a result is not there. `make` makes the error anew for each look; `undo` takes back what was written after it."""

    def __init__(self, make: Callable[[], BaseException], line: str = "") -> None:
        self.make, self.line = make, line
        self.undo: list[tuple[Any, Any, int]] = []

    def error(self) -> BaseException:
        """What to raise. From now on the user knows, so what came after the failure has not been."""
        undo, self.undo = self.undo, []
        for reference, old, version in undo:
            storage = reference()
            if storage is not None:
                storage.restore(old, version)
        error = self.make()
        if self.line:
            error.add_note(f"raised by the operation recorded at {self.line}")
        return error


# What an epoch has none of, which most have not: the same for all, and never written to.
_NONE: dict[Any, Any] = {}
_EMPTY: list[Any] = []


class Epoch:
    """The operations of one program, pending or under way, and afterwards what those who hold its Values may still ask.

    begun, step: where the program begins and ends in the tree of Steps. values, leaves: its results by slot and its inputs by their number.
    numbers: Python's, by their places. foreign: slots of inputs that keep another epoch. aliases: Values that have the content of another.
    on_host: which inputs are host data and were used before. lines: the user's lines of operations with checks, by slot. writes: what storages held
    before they were written to, since the first check. bytes: of the inputs; largest: of the largest one. limit: at how many results the program is
    cut. wanted: the slots of the results that are computed, once that is decided. outcomes: what those are, an array or a Failure, where the program
    did not come to its end by itself; first_failure: of its checks. results: in it what a call of the whole program returned. ended: whether it is
    over, well or not. What is rarely there, from `foreign` to `writes`, is noted by the methods for it alone.
    """

    __slots__ = (
        "recorder", "step", "values", "leaves", "numbers", "foreign", "aliases", "on_host", "lines", "writes", "bytes", "largest", "limit", "wanted",
        "outcomes", "first_failure", "results", "ended", "lock", "begun",
    )  # fmt: skip

    def __init__(self, recorder: Any, step: Any = None, limit: int = 0) -> None:
        self.recorder, self.limit = recorder, limit
        self.begun: Any = step
        self.step: Any = step
        self.values: dict[int, Any] = {}
        self.leaves: dict[int, Any] = {}
        self.numbers: dict[tuple[str, int], Any] = {}
        self.foreign: dict[Any, int] = _NONE
        self.aliases: list[Any] = _EMPTY
        self.on_host: list[int] = _EMPTY
        self.lines: dict[int, tuple[str, int] | None] = _NONE
        self.writes: list[tuple[int, Any, Any, int]] = _EMPTY
        self.bytes = self.largest = 0
        self.wanted: list[int] | None = None
        self.outcomes: dict[int, Any] | None = None
        self.first_failure: Any = None
        self.results: list[Any] = _EMPTY
        self.ended = False
        self.lock = RLock()

    def arrays_of_numbers(self) -> list[np.ndarray]:
        """The Python numbers, one array for each of their dtypes."""
        counts, numbers = self.step.counts, self.numbers
        if not counts:
            return []
        if len(counts) == 1:
            ((kind, count),) = counts.items()
            if len(numbers) == count:  # else an operation that was interrupted has left some
                return [np.fromiter(numbers.values(), KINDS[kind], count)]
        return [np.fromiter(map(numbers.__getitem__, places_of(kind, counts[kind])), KINDS[kind], counts[kind]) for kind in KINDS if kind in counts]

    def force(self, value: Any) -> None:
        """Set the array of one of this epoch's Values, whichever thread asks. Raises what became of it if its computation failed."""
        recorder = self.recorder
        if threading.get_ident() == recorder.thread:
            if recorder.epoch is self:
                recorder.flush("look")
        else:
            if recorder.epoch is self:
                running.look_from_outside(self, value)
            while value.array is None and not self.ended:
                time.sleep(_POLL)
        if value.array is None:
            value.array = self.outcome(value.slot)

    def outcome(self, slot: int) -> Any:
        """A result of a program that did not come to its end, computed operation by operation. Raises where that fails."""
        if self.outcomes is None or slot not in self.outcomes:
            # On one line: an interrupt between two would leave it locked.
            with self.lock: running.recover(self, slot)  # noqa: E701  # fmt: skip
        found = (self.outcomes or {})[slot]
        if isinstance(found, Failure):
            raise found.error()
        return found

    def note_foreign(self, value: Any, slot: int) -> None:
        """`value`, which keeps another epoch, is the input of this slot."""
        if self.foreign is _NONE:
            self.foreign = {}
        self.foreign[value] = slot

    def note_alias(self, twin: Any) -> None:
        """`twin` has the content of the Value of its slot."""
        if self.aliases is _EMPTY:
            self.aliases = []
        self.aliases.append(twin)

    def note_on_host(self, index: int) -> None:
        """This input is host data, and was used before."""
        if self.on_host is _EMPTY:
            self.on_host = []
        self.on_host.append(index)

    def note_line(self, slot: int, line: tuple[str, int] | None) -> None:
        """The operation of this slot, which has a check, was recorded at this line of the user's."""
        if self.lines is _NONE:
            self.lines = {}
        self.lines[slot] = line

    def note_write(self, storage: Any, old: Any, version: int) -> None:
        """Remember what a storage holds before a write that follows a check. Without holding it, so that it may still be given away."""
        if self.writes is _EMPTY:
            self.writes = []
        self.writes.append((self.step.end, weakref.ref(storage), old.slot if old.epoch is self else old, version))

    def finish(self) -> None:
        """All results are where they belong: nothing else need be kept."""
        self.ended = True
        # Others may be copying the former ones.
        self.values = self.leaves = self.numbers = self.foreign = self.lines = _NONE
        self.aliases = self.on_host = self.writes = self.results = _EMPTY
        self.step = self.begun  # those who hold its Values hold it: they need not hold the Steps as well
