"""Where what differs from turn to turn of a loop ends, and what comes back begins: there a program is cut.

A step of training that puts its batch together by other operations each time (crops, flips, sequences of other lengths) would be a new program each
time, with all of the model and the optimizer in it. In two parts only the first is new. What begins the other is found by comparing the ends of
programs that are new; it is an operation that each has once, and the next program that is new and comes to it is run up to there.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.operation import expansion
from torchgrad_jax.runtime.recording.step import Step

# So many operations, or results, at least come after a cut: running a program takes as long as recording some ten.
LEAST = 16
# With how many programs a new one is compared, and in how many operations.
KEPT, MOST = 6, 1_000
# After so many that had no end in common, only each so manieth is compared.
IN_VAIN, SOME = 24, 8
# How often an end is found before programs are cut there, and how often what begins there may be new, beyond how often it was known.
FOUND, NEW = 2, 8


class Cut:
    """What a Signature has before which programs are cut: how often it began what they have in common, how many outputs that had, how often what
    began with it was known, and how often it was new or
    short."""

    __slots__ = ("found", "outputs", "known", "new")

    def __init__(self) -> None:
        self.found = self.outputs = self.known = self.new = 0

    def ran(self, outputs: int, new: bool) -> None:
        """A program that begins here, and has so many outputs, was run. Whether a short one is known does not matter."""
        if new or outputs < LEAST:
            self.new += 1
        else:
            self.known += 1

    @property
    def pays(self) -> bool:
        """Whether programs are cut here."""
        return self.found >= FOUND and self.new <= self.known + NEW and not (modes.deterministic or modes.same_tier_blocks)


class Cutting:
    """The last new programs of a thread, as the operations that they end with."""

    __slots__ = ("_last", "_in_vain")

    def __init__(self) -> None:
        self._last: list[list[Step]] = []
        self._in_vain = 0

    def met(self, end: Step) -> None:
        """A program was met for the first time, that ends at a Step."""
        self._in_vain += 1
        if self._in_vain > IN_VAIN and self._in_vain % SOME:
            return
        steps = _operations(end)
        if not steps or steps[0].end <= LEAST or any([other[0] is steps[0] for other in self._last]):  # others of its results are held
            return
        length = max([_in_common(steps, other) for other in self._last], default=0)
        self._last = [*self._last[1 - KEPT :], steps]
        if 0 < length < len(steps):
            begins = _beginning(steps, length)
            if begins is not None:
                self._in_vain = 0
                sig: Any = begins.signature
                sig.cut = sig.cut or Cut()
                sig.cut.found += 1
                sig.cut.outputs = end.end - begins.slot


def _operations(step: Step | None) -> list[Step]:
    """The last operations up to a Step, last first."""
    found: list[Step] = []
    while step is not None and len(found) < MOST:
        if step.signature is not None:
            found.append(step)
        step = step.parent
    return found


def _in_common(one: list[Step], other: list[Step]) -> int:
    """How many operations two programs end with are the same, of results of these or of anything before."""
    count, bounds = 0, [0, 0]  # what is before a bound is not the same for both
    ends = one[0].end, other[0].end
    for a, b in zip(one, other, strict=False):
        if a.signature is not b.signature or a.slot < bounds[0] or b.slot < bounds[1]:
            break
        if a.args != b.args or ends[0] != ends[1]:
            for p, q in zip(a.args, b.args, strict=True):
                if type(p) is int and (p < 0 or q < 0 or ends[0] - p != ends[1] - q):
                    bounds = [max(bounds[0], p + 1), max(bounds[1], q + 1)]
        count += 1
    return count


def _beginning(steps: list[Step], length: int) -> Step | None:
    """What the program is cut before: the first operation of its last `length` that it has once, if there is enough after it."""
    times = Counter([id(step.signature) for step in steps])
    for at in reversed(range(length)):
        if times[id(steps[at].signature)] == 1:
            return steps[at] if sum(map(_size, steps[: at + 1])) >= LEAST else None
    return None


def _size(step: Step) -> int:
    """Of how many operations one is, or how many results it has, as that of an optimizer does."""
    sig: Any = step.signature
    known = expansion(sig.bop, sig.specs)
    return step.end - step.slot if known is None else len(known.steps)
