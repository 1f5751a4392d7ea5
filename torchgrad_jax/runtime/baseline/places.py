"""Where the results of steps are kept while they run: dropped after their last use, and written over what is not needed any more.

A result takes the place of what was read for the last time, so that writing it drops that array and the next step gets its memory, which
is still in the processor's cache: keeping all arrays made 20 steps on 256 x 256 elements ten times slower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np

from torchgrad_jax.runtime.baseline.carrying import DROPPED, RESHAPED, TURNED, kind_of

# A result that may share memory with more arrays than this is followed no further: all of them are left as they are.
_MOST_HELD = 32
_NOTHING: frozenset[int] = frozenset()


class Assignable(Protocol):
    """What `assigned` asks of a step. Slots are written once.

    fresh: its one result is memory of its own, which no operand and nobody else refers to.
    overwriting: by the place of an operand, the function of the same operands that writes the result into that one and returns it.
    """

    @property
    def function(self) -> Any: ...
    @property
    def operands(self) -> list[int]: ...
    @property
    def results(self) -> list[int]: ...
    @property
    def fresh(self) -> bool: ...
    @property
    def overwriting(self) -> Mapping[int, Callable[..., Any]]: ...


class Moved:
    """The function of a step that only looks at its operand otherwise: `how`, which is a shape or an order of dimensions by its `kind`, RESHAPED or
    TURNED (`carrying`)."""

    __slots__ = ("kind", "how")

    def __init__(self, kind: int, how: tuple[int, ...]) -> None:
        self.kind, self.how = kind, how

    def __call__(self, array: Any) -> Any:
        return array.reshape(self.how) if self.kind == RESHAPED else array.transpose(self.how)


# Of which dimension of an array, how many elements, and how far they are apart in it.
Stretch = tuple[int, int, int]


def split(shape: tuple[int, ...], moves: Sequence[Moved]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """What an array of this shape is first looked at as, which only splits its dimensions, and then the order of these in what the moves, one after
    the other, make of it. None where they join what need not lie together."""
    dims: list[list[Stretch]] | None = [[(d, n, 1)] if n > 1 else [] for d, n in enumerate(shape)]
    for move in moves:
        if move.kind == TURNED:
            dims = [dims[d] for d in move.how]
        elif (dims := _grouped([part for dim in dims for part in dim], move.how)) is None:
            return None
    whole: list[Stretch | None] = []
    for dim in dims:
        *outer, inner = dim or [(-1, 1, 0)]
        for d, n, step in reversed(outer):
            if (d, step) != (inner[0], inner[1] * inner[2]):
                return None
            inner = d, n * inner[1], inner[2]
        whole.append(inner if dim else None)
    parts = sorted([part for part in whole if part is not None], key=lambda part: (part[0], -part[2]))
    ones = iter(range(len(parts), len(whole)))
    order = tuple([next(ones) if part is None else parts.index(part) for part in whole])
    return (*[n for _, n, _ in parts], *(1,) * (len(whole) - len(parts))), order


def _grouped(parts: list[Stretch], shape: tuple[int, ...]) -> list[list[Stretch]] | None:
    """The parts, in their order, as the dimensions of this shape, some of them cut. None where that cannot be."""
    rest, found = parts[::-1], []
    for n in shape:
        dim: list[Stretch] = []
        while n > 1:
            d, size, step = rest.pop()
            if n % size and size % n:
                return None
            if size > n:
                rest.append((d, size // n, step))
                step, size = step * (size // n), n
            dim.append((d, size, step))
            n //= size
        found.append(dim)
    return found


def assigned(
    steps: Sequence[Assignable], inputs: Sequence[int], constants: dict[int, Any], outputs: Sequence[int], drops: bool = False
) -> tuple[list[tuple[Any, ...]], list[Any], list[int]]:
    """The calls, the values that a run begins with (inputs first), and where the outputs are, with places given to slots.

    drops: whether what is not needed any more is dropped even where no result takes its place at once.
    """
    template: list[Any] = [None] * len(inputs)
    place = {slot: i for i, slot in enumerate(inputs)}
    for slot, value in constants.items():
        place[slot] = len(template)
        template.append(value)
    last = {slot: i for i, step in enumerate(steps) for slot in step.operands}
    lasting = {*outputs, *constants}
    free: list[int] = []
    calls = []
    for i, (step, function) in enumerate(zip(steps, _functions(steps, outputs), strict=True)):
        reads = [place[s] for s in step.operands]
        dead = [place[s] for s in dict.fromkeys(step.operands) if last[s] == i and s not in lasting]
        free += dead
        if len(step.results) == 1 and free:
            out: Any = free.pop()
            place[step.results[0]] = out
        else:
            first = len(template)
            place.update({s: first + k for k, s in enumerate(step.results)})
            template += [None] * len(step.results)
            out = first if len(step.results) == 1 else slice(first, len(template))
        unread = [place[s] for s in step.results if s not in last and s not in lasting]
        free += unread
        a, b, c = (*reads, 0, 0, 0)[:3]
        moved = type(function) is Moved
        calls.append((function.how if moved else function, function.kind if moved else kind_of(function, len(reads)), a, b, c, tuple(reads), out))
        if drops:
            calls += [(None, DROPPED, p, 0, 0, (), p) for p in [*[p for p in dead if p != out], *unread]]
    return calls, template, [place[s] for s in outputs]


# ---------------------------------------------------------------------- writing over what is not needed any more


def _functions(steps: Sequence[Assignable], outputs: Sequence[int]) -> list[Any]:
    """For each step the function that is called: where it can, one that writes into an operand that nothing reads afterwards.

    Only the result of a fresh step is written over: arguments, constants, and views of them are somebody else's.
    """
    if not any([step.overwriting for step in steps]):
        return [step.function for step in steps]
    held, until = _held(steps, outputs)
    functions = []
    for i, step in enumerate(steps):
        chosen = step.function
        for place, function in step.overwriting.items():
            slot = step.operands[place]
            if until.get(slot) == i and slot in held[slot]:  # it is a fresh one itself
                chosen = function
                break
        functions.append(chosen)
    return functions


def _held(steps: Sequence[Assignable], outputs: Sequence[int]) -> tuple[dict[int, frozenset[int]], dict[int, int]]:
    """For each slot the fresh results whose memory it may refer to; and for each of these the last step that reads any of it."""
    held: dict[int, frozenset[int]] = {}
    until: dict[int, int] = {}
    never = len(steps)
    for i, step in enumerate(steps):
        found = _NOTHING
        for slot in step.operands:
            more = held.get(slot)
            if more is not None:
                found = more if not found else found | more
        for slot in found:
            if until[slot] != never:
                until[slot] = i
        if step.fresh:
            (made,) = step.results
            held[made] = frozenset((made,))
            until[made] = i
        elif found:
            if len(found) > _MOST_HELD:
                until.update(dict.fromkeys(found, never))
                continue
            held.update(dict.fromkeys(step.results, found))
    for slot in outputs:
        until.update(dict.fromkeys(held.get(slot, _NOTHING), never))
    return held, until


@cache
def into(ufunc: np.ufunc, place: int) -> Callable[..., Any]:
    """`ufunc` with its result written into the operand at `place`."""
    if ufunc.nin == 1:
        return lambda a: ufunc(a, out=a)
    if place == 0:
        return lambda a, b: ufunc(a, b, out=a)
    return lambda a, b: ufunc(a, b, out=b)
