"""Signatures of one operator that differ in sizes alone share what is known of them, and need no trace to know their outputs' avals.

Three quarters of what a program with changing sizes calls differs from an earlier call in sizes only. A trace takes 65 us and more, to ask an
operator all that a Signature tells of it 45, the call itself 2. Where there is a form for NumPy arrays, it tells the outputs' avals at any sizes.
What is element-wise serves all of them. What else may be shared is learned, not declared: a plan whose steps all work for any sizes, made at one
signature, is held against the jaxpr traced at another. Where the two differ in nothing but shapes, the sizes that differed between them may from then
on be others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from torchgrad_jax.runtime.baseline import same_plan
from torchgrad_jax.runtime.recording import making
from torchgrad_jax.runtime.value import Aval, aval_of

Sizes = tuple[int, ...]

# Up to this many different sizes their products are compared, which takes 2 ** count steps.
_MOST_SIZES = 8


def pattern(specs: Sequence[Any]) -> tuple[tuple[Any, ...], Sizes]:
    """What the operands of kindred signatures have in common, and the sizes that they may differ in.

    In common are dtypes, ranks, devices, which sizes are 0 or 1, which are equal, and how large it all is to a factor of four, since what a plan
    costs is told for its first signature.
    """
    sizes: dict[Any, Any] = {}
    parts: list[Any] = []
    elements: Any = 0
    for spec in specs:
        if type(spec) is not Aval:
            parts.append(spec)
            continue
        aval: Aval = spec
        parts.append(aval.dtype)
        parts.append(aval.device)
        elements += aval.size
        shape: Any = aval.shape
        for n in shape:
            parts.append(n if n < 2 else -sizes.setdefault(n, len(sizes) + 1))
        parts.append(None)  # shapes that follow each other are not one
    parts.append(elements.bit_length() // 2)
    return tuple(parts), tuple(sizes)


def untracked(leaf: Any) -> None:
    """Where this is compiled, let no collection of garbage look through a tuple of avals and types, of which each signature has two: they refer to
    nothing that could refer to it."""
    making.untrack(leaf)


class Kind:
    """The signatures of one pattern. first: the one that it was met with; plans: how its operation is differentiated, by whoever asks.

    formed: whether forms for NumPy tell all of each; forms: those that serve all, None where they are made for one alone; form: what is run of these,
    where it serves all as well. elementwise: whether the plan of the first one does. learned: what traces have told.
    """

    __slots__ = ("first", "plans", "formed", "forms", "form", "elementwise", "learned", "_outs", "_alike")

    def __init__(self) -> None:
        self.first: Any = None
        self.plans: dict[Any, Any] = {}
        self.formed = self.elementwise = False
        self.forms: Any = None
        self.form: Any = None
        self.learned: Learned | None = None
        self._outs: list[Any] = []
        self._alike: list[bool] = []

    def begin(self, first: Any, sizes: Sizes) -> None:
        """Be met with a Signature, of which all is known."""
        self.first, self._outs, self._alike = first, _places(first.avals, sizes), self.relation(first)

    def relation(self, sig: Any) -> list[bool]:
        """Which of the operands are what a result is like: gradients are passed on to these."""
        return [spec is aval for spec in sig.specs for aval in sig.avals]

    def has(self, sig: Any) -> bool:
        """Whether a Signature of its pattern is differentiated like its first one."""
        return self.relation(sig) == self._alike

    def predicted(self, sizes: Sizes) -> tuple[Aval, ...]:
        """The outputs' avals at other sizes, if each of their sizes is one of the operands', or the same for all."""
        return _predicted(self._outs, sizes)


def _places(avals: Sequence[Aval], sizes: Sizes) -> list[Any]:
    """Each dimension of a result as the place of its size, or as -1 - n if it is n whatever the sizes are."""
    place = {n: i for i, n in enumerate(sizes)}
    return [(a.dtype, a.device, [place.get(n, -1 - n) if n > 1 else -1 - n for n in a.shape]) for a in avals]


def _predicted(outs: list[Any], sizes: Sizes) -> tuple[Aval, ...]:
    return tuple([aval_of(tuple([sizes[i] if i >= 0 else -1 - i for i in dims]), dtype, where) for dtype, where, dims in outs])


class Learned:
    """Which of its sizes may be others, of the pattern that a signature was traced for; all, where its jaxpr is written down."""

    __slots__ = ("first", "_sizes", "_jaxpr", "_free", "_outs", "_apart")

    def __init__(self, first: Any, sizes: Sizes, jaxpr: Any = None) -> None:
        self.first, self._sizes = first, sizes
        self._jaxpr: Any = jaxpr
        self._free = [jaxpr is None] * len(sizes)
        self._outs = _places(first.avals, sizes)
        self._apart = len(sizes) > _MOST_SIZES

    def avals(self, sizes: Sizes) -> tuple[Aval, ...] | None:
        """The outputs' avals at other sizes; None where nothing is known of these."""
        if self._apart or not all(map(_may_be, sizes, self._sizes, self._free)):
            return None
        return _predicted(self._outs, sizes)

    def learn(self, other: Any, sizes: Sizes, jaxpr: Any) -> None:
        """Hold another signature of the pattern, which was traced, against the first."""
        if self._apart:
            return
        differ = [m != n for m, n in zip(sizes, self._sizes, strict=True)]
        if _coincide(self._sizes, sizes, differ):
            return
        plan = self.first.baseline
        predicted = _predicted(self._outs, sizes) == other.avals
        if plan is None or not getattr(plan, "any_sizes", False) or not predicted or not same_plan(self._jaxpr, jaxpr):
            self._apart, self._jaxpr = True, None
            return
        self._free = [a or b for a, b in zip(self._free, differ, strict=True)]


def _may_be(size: int, known: int, free: bool) -> bool:
    return free or size == known


def _coincide(old: Sizes, new: Sizes, differ: list[bool]) -> bool:
    """Whether some product of sizes that changed is what it was: a number that was made of it would look as if it came from no size."""
    places = range(len(old))
    for count in range(1, len(old) + 1):
        for chosen in combinations(places, count):
            if any([differ[i] for i in chosen]) and math.prod([old[i] for i in chosen]) == math.prod([new[i] for i in chosen]):
                return True
    return False
