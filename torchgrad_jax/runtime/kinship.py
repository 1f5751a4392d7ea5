"""Signatures of one operator that differ in sizes alone share a plan, and need no trace to know their outputs' avals.

Three quarters of what a program with changing sizes calls differs from an earlier call in sizes only, and a trace takes 65 us and more, the
call itself 2. What may be shared is learned, not declared: a plan whose steps all work for any sizes, made at one signature, is held against
the jaxpr traced at another. Where the two differ in nothing but shapes, the sizes that differed between them may from then on be others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from torchgrad_jax.runtime.baseline import same_plan
from torchgrad_jax.runtime.value import Aval, aval_of

Sizes = tuple[int, ...]

# Up to this many different sizes their products are compared, which takes 2 ** count steps.
_MOST_SIZES = 8


def pattern(specs: Sequence[Any]) -> tuple[tuple[Any, ...], Sizes]:
    """What the operands of kindred signatures have in common, and the sizes that they may differ in.

    In common are dtypes, ranks, devices, which sizes are 0 or 1, which are equal, and how large it all is to a factor of four, since what a plan
    costs is told for its first signature.
    """
    sizes: dict[int, int] = {}
    parts: list[Any] = []
    elements = 0
    for spec in specs:
        if isinstance(spec, type):
            parts.append(spec)
            continue
        parts += (spec.dtype, spec.device)
        parts.append(tuple([n if n < 2 else -sizes.setdefault(n, len(sizes) + 1) for n in spec.shape]))
        elements += spec.size
    parts.append(elements.bit_length() // 2)
    return tuple(parts), tuple(sizes)


class Kindred:
    """The signatures of one pattern: the first of them, and which of its sizes may be others; all, where its jaxpr is written down."""

    __slots__ = ("first", "_sizes", "_jaxpr", "_free", "_outs", "_apart")

    def __init__(self, first: Any, sizes: Sizes, jaxpr: Any = None) -> None:
        self.first, self._sizes = first, sizes
        self._jaxpr: Any = jaxpr
        self._free = [jaxpr is None] * len(sizes)
        place = {n: i for i, n in enumerate(sizes)}
        # Each dimension of a result as the place of its size, or as -1 - n if it is n whatever the sizes are.
        self._outs: list[Any] = [(a.dtype, a.device, [place.get(n, -1 - n) if n > 1 else -1 - n for n in a.shape]) for a in first.avals]
        self._apart = len(sizes) > _MOST_SIZES

    def avals(self, sizes: Sizes) -> tuple[Aval, ...] | None:
        """The outputs' avals at other sizes; None where nothing is known of these."""
        if self._apart or not all(map(_may_be, sizes, self._sizes, self._free)):
            return None
        return self._predicted(sizes)

    def learn(self, other: Any, sizes: Sizes, jaxpr: Any) -> None:
        """Hold another signature of the pattern, which was traced, against the first."""
        if self._apart:
            return
        differ = [m != n for m, n in zip(sizes, self._sizes, strict=True)]
        if _coincide(self._sizes, sizes, differ):
            return
        plan = self.first.baseline
        alike = plan is not None and getattr(plan, "any_sizes", False) and self._predicted(sizes) == other.avals and same_plan(self._jaxpr, jaxpr)
        if not alike:
            self._apart, self._jaxpr = True, None
            return
        self._free = [a or b for a, b in zip(self._free, differ, strict=True)]

    def _predicted(self, sizes: Sizes) -> tuple[Aval, ...]:
        return tuple([aval_of(tuple([sizes[i] if i >= 0 else -1 - i for i in dims]), dtype, where) for dtype, where, dims in self._outs])


def _may_be(size: int, known: int, free: bool) -> bool:
    return free or size == known


def _coincide(old: Sizes, new: Sizes, differ: list[bool]) -> bool:
    """Whether some product of sizes that changed is what it was: a number that was made of it would look as if it came from no size."""
    places = range(len(old))
    for count in range(1, len(old) + 1):
        for chosen in combinations(places, count):
            if any(differ[i] for i in chosen) and math.prod([old[i] for i in chosen]) == math.prod([new[i] for i in chosen]):
                return True
    return False
