"""Steps: the programs seen so far, as a tree. See `recorder.py`, which makes and follows them."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from torchgrad_jax.runtime.recording.fields import CallFields, SignatureFields

# A Python number is an argument by its value, which a program takes at run time; its type alone shapes the program.
NUMBER_DTYPES: dict[type, np.dtype] = {
    float: np.dtype(np.float64),
    int: np.dtype(np.int64),
    bool: np.dtype(np.int64),
    complex: np.dtype(np.complex128),
}
# More results than any program has, and fewer than where there is no limit.
BEYOND = 1 << 40
# Python numbers become arrays of these dtypes, by NumPy's kind.
KINDS: dict[str, Any] = {"f": np.float64, "i": np.int64, "c": np.complex128}
# The places of numbers: one object for each, which makes looking them up quicker. There are as many as the longest program has had.
_places: dict[str, list[tuple[str, int]]] = {kind: [] for kind in KINDS}


class Step(CallFields):
    """One operation, or one more input, at one place of a program.

    slot: of the first output (counted from 0), or of the input (-1, -2, ...). `signature` is None for an input. numbers: for each Python number among
    the operands, its place in the program's numbers of that dtype; numbered: which operand the last of them is. several: whether it has several
    outputs or numbers. inputs, counts, nbytes: of all inputs, numbers and outputs up to here. due: `end`, or where there is a check to be noted, or
    the program is cut, a number beyond every limit; cut: why it is cut after it (see `cutting`). programs: what was run that ends here, by which
    results were held and which inputs given away; settled: see `Settled`. line: the user's that it was first recorded from, where somebody watched
    (`observing`).

    last: what came next the last time, which most often comes again. It is told by bop and args, of which `a` and `b` are the first two. All that
    came next are `next`, by what tells them, or `only` where it was one: a long program that is met once is made of these.
    """

    __slots__ = (
        "next", "only", "parent", "first", "aval", "due", "several", "inputs", "numbered", "counts", "nbytes", "programs", "settled", "line",
        "cut", "last", "bop", "a", "b",
    )  # fmt: skip

    def __init__(self, parent: Step | None, sig: SignatureFields | None, args: tuple[Any, ...], aval: Any, slot: int, end: int):
        self.begin(parent, sig, args, aval, slot, end)

    def begin(self, parent: Step | None, sig: SignatureFields | None, args: tuple[Any, ...], aval: Any, slot: int, end: int) -> None:
        """Be made, by `__init__` or in place of it."""
        self.next: dict[Any, Step] | None = None
        self.only: Step | None = None
        self.last: Step | None = None
        self.a: Any = args[0] if args else None
        self.b: Any = args[1] if len(args) > 1 else None
        self.line = ""
        self.parent = parent
        self.signature = sig  # a Signature, but for inputs
        self.args, self.numbers = args, ()
        self.aval = aval
        self.slot = slot
        self.end = self.due = end
        self.programs: dict[Any, Any] | None = None
        self.settled: Any = None
        self.cut: Any = None
        if parent is None:
            self.first: SignatureFields | None = sig
            self.inputs, self.nbytes = 0, 0
            self.counts: dict[str, int] = {}
        else:
            self.first = sig if parent.first is None else parent.first
            self.inputs, self.nbytes, self.counts = parent.inputs, parent.nbytes, parent.counts
        if sig is None:
            self.bop: Any = None
            self.inputs += parent is not None
        else:
            self.bop = sig.bop
            self.nbytes += sig.nbytes
            if sig.check is not None:
                self.due += BEYOND
            if sig.numbered:
                self._place_numbers()
        self.several = type(aval) is tuple or len(self.numbers) > 1

    def after(self, key: Any) -> Step | None:
        """What comes next by this key: an input's aval, or a bop and its args."""
        if self.next is not None:
            return self.next.get(key)
        only = self.only
        return only if only is not None and only.key() == key else None

    def follow(self, key: Any, step: Step) -> Step:
        """Let a Step come next. Returns the one that does, which another thread may have made. One that is lost where two threads make the first two
        at once is made again."""
        if self.next is None:
            only = self.only
            if only is None:
                self.only = step
                return step
            self.next = {only.key(): only}
        return self.next.setdefault(key, step)

    def key(self) -> Any:
        """What tells it from others after its parent."""
        return self.aval if self.signature is None else (self.bop, *self.args)

    def following(self) -> list[Step]:
        """All that came next."""
        if self.next is not None:
            return list(self.next.values())
        return [] if self.only is None else [self.only]

    def forget(self, steps: Container[Step] | None = None) -> list[Step]:
        """Let go of what came next, or of that which is not among some. Returns what is let go of."""
        if self.last is not None and (steps is None or self.last not in steps):
            self.last = None
        gone = [step for step in self.following() if steps is None or step not in steps]
        if gone:
            kept = [step for step in self.following() if steps is not None and step in steps]
            self.only, self.next = None, {step.key(): step for step in kept} if kept else None
        return gone

    def _place_numbers(self) -> None:
        counts = dict(self.counts)
        places = []
        for i, kind in enumerate(self.args):
            if type(kind) is not int:
                self.numbered = i
                array = NUMBER_DTYPES[kind].kind
                counts[array] = count = counts.get(array, 0) + 1
                places.append(places_of(array, count)[count - 1])
        self.numbers, self.counts = tuple(places), counts


def places_of(kind: str, count: int) -> list[tuple[str, int]]:
    """The places of numbers of one dtype, at least `count`."""
    known = _places[kind]
    if len(known) < count:
        known = _places[kind] = [*known, *[(kind, i) for i in range(len(known), count + 100)]]
    return known
