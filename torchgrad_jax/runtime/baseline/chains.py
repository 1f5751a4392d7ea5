"""Finds chains among the steps of a program: element-wise ones of one shape and dtype that can be carried out together (`blocks`).

They need not follow one another: a chain waits until something else reads one of its results, unless it is of large arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.runtime.baseline import cost, lanes
from torchgrad_jax.runtime.baseline.blocks import BFLOAT16, MOST_OPERATIONS, MOST_SLOTS, Chain, Together
from torchgrad_jax.runtime.baseline.places import Assignable

# Which operation of `lanes` a function is; those of modules that are loaded with the rules enter themselves.
NUMBERS: dict[Any, int] = {
    np.add: lanes.ADD, np.subtract: lanes.SUB, np.multiply: lanes.MUL, np.true_divide: lanes.DIV, np.negative: lanes.NEG, np.abs: lanes.ABS,
    np.sqrt: lanes.SQRT, np.square: lanes.SQUARE, np.greater: lanes.GT, np.greater_equal: lanes.GE, np.less: lanes.LT, np.less_equal: lanes.LE,
    np.equal: lanes.EQ, np.not_equal: lanes.NE,
}  # fmt: skip
# What NumPy takes long for, one element after the other or by several calls: worth a chain of its own.
_SLOW = {lanes.SELECT, lanes.LARGER, lanes.SMALLER, lanes.SIGN}
# Dtypes that are float32 in registers, by their letters, and what widens elements from memory, rounds registers, and rounds into memory.
_HALVES = {
    "e": (lanes.WIDEN_HALF, lanes.ROUND_HALF, lanes.NARROW_HALF),
    BFLOAT16.char: (lanes.WIDEN_BRAIN, lanes.ROUND_BRAIN, lanes.NARROW_BRAIN),
}
_MASKS = lanes.LOAD, 0, lanes.KEEP
_SINGLE = {"f", *_HALVES}
# What of half precision is half precision again.
_EXACT = {lanes.NEG, lanes.ABS, lanes.LARGER, lanes.SMALLER, lanes.SIGN, lanes.SELECT}
# Beyond this a group is closed; it must fit into a chain with what masks take.
_MOST = MOST_OPERATIONS // 2
# What has more elements waits for nothing but what is small, as numbers of a step's are: its operands would be kept for longer.
_LARGE, _SMALL = 1 << 18, 1 << 12
# From so many operations on numbers on they are shared, and so many at once: of more, what is not needed any more would be kept for longer.
_WORTH, _ENOUGH = 1 << 18, 1 << 20


class Fact(NamedTuple):
    """What an array of a slot is, each time."""

    shape: tuple[int, ...]
    letter: str
    size: int
    contiguous: bool


def fact(array: Any) -> Fact:
    """What is so of an array."""
    return Fact(array.shape, array.dtype.char, array.size, array.flags.c_contiguous)


class Chained(NamedTuple):
    """A chain as a step, or several at once: see `places.Assignable`. chains: what each of them does."""

    function: Any
    operands: list[int]
    results: list[int]
    fresh: bool
    overwriting: dict[int, Any]
    chains: tuple[cost.ChainWork, ...]


def what_is_chained(steps: Sequence[Any]) -> list[cost.ChainWork]:
    """What the chains among the steps do."""
    return [chain for step in steps if type(step) is Chained for chain in step.chains]


class _Group:
    """Steps that are to become a chain."""

    def __init__(self, shape: tuple[int, ...], letter: str) -> None:
        self.shape, self.letter = shape, letter
        self.size = math.prod(shape)
        self.steps: list[Assignable] = []
        self.made: set[int] = set()


def chained(steps: Sequence[Assignable], facts: dict[int, Fact], outputs: Iterable[int]) -> list[Assignable]:
    """The steps with chains in the place of what they do."""
    found = _Finder(steps, facts, outputs)
    for step in steps:
        found.add(step)
    for group in list(found.open.values()):
        found.close(group)
    return _side_by_side(found.steps)


def _side_by_side(steps: list[Assignable]) -> list[Assignable]:
    """The steps with chains that threads share in the place of those that stand in a row, where none reads what another makes."""
    found: list[Assignable] = []
    row: list[Assignable] = []
    made: set[int] = set()
    work = 0

    def end_row() -> None:
        nonlocal work
        found.extend([_as_one(row)] if len(row) > 1 and work >= _WORTH else row)
        row.clear()
        made.clear()
        work = 0

    for step in steps:
        chain = step.function
        alone = type(chain) is not Chain or chain.is_shared()
        if alone or work >= _ENOUGH or not made.isdisjoint(step.operands):
            end_row()
        if alone:
            found.append(step)
            continue
        row.append(step)
        made.update(step.results)
        work += chain.work()
    end_row()
    return found


def _as_one(row: list[Assignable]) -> Chained:
    chains = Together([step.function for step in row])
    operands, results = [slot for step in row for slot in step.operands], [slot for step in row for slot in step.results]
    return Chained(chains, operands, results, False, {}, tuple(what_is_chained(row)))


class _Finder:
    def __init__(self, steps: Sequence[Assignable], facts: dict[int, Fact], outputs: Iterable[int]) -> None:
        self.facts, self.steps = facts, list[Assignable]()
        self.open: dict[tuple[Any, str], _Group] = {}
        self.readers: dict[int, list[int]] = {slot: [-1] for slot in outputs}
        for step in steps:
            for slot in step.operands:
                self.readers.setdefault(slot, []).append(id(step))

    def add(self, step: Assignable) -> None:
        """The next step."""
        key = self.key(step)
        group = None if key is None else self.open.get(key)
        waits = all([self.facts[slot].size <= _SMALL for slot in (*step.operands, *step.results)])
        for other in list(self.open.values()):
            if other is not group and ((other.size > _LARGE and not waits) or not other.made.isdisjoint(step.operands)):
                self.close(other)
        if key is None:
            self.steps.append(step)
            return
        if group is not None and len(group.steps) >= _MOST:
            self.close(group)
            group = None
        if group is None:
            group = self.open[key] = _Group(*key)
        group.steps.append(step)
        group.made.update(step.results)

    def key(self, step: Assignable) -> tuple[tuple[int, ...], str] | None:
        """Of which group a step could be: by the shape of its result and the dtype of its numbers in registers. None if it is for none."""
        number = NUMBERS.get(step.function)
        if number is None or len(step.operands) != lanes.ARITY[number]:
            return None
        result, *given = [self.facts[slot] for slot in (*step.results, *step.operands)]
        letter = given[-1].letter
        expected = [letter] * len(given)
        if number == lanes.SELECT:
            expected[0] = "?"
        registers = "f" if letter in _SINGLE else letter
        if registers not in ("fd" if number < lanes.EXP else "f") or [f.letter for f in given] != expected or not result.size:
            return None
        if not _is_made(number, letter, result.letter) or any([_times(f, result.shape) is None for f in given]):
            return None
        return result.shape, registers

    def close(self, group: _Group) -> None:
        """Let the steps of a group be carried out here."""
        self.open.pop((group.shape, group.letter), None)
        for steps in self.apart(group) if group.size > _LARGE else (group.steps,):
            self.append(group, steps)

    def apart(self, group: _Group) -> list[list[Assignable]]:
        """The steps of a group of large arrays, those that have none of them in common apart from each other: together more would be kept at once."""
        part: dict[int, int] = {}  # in which one each such array is
        for i, step in enumerate(group.steps):
            slots = [slot for slot in (*step.operands, *step.results) if self.facts[slot].size == group.size]
            joined = {part[slot] for slot in slots if slot in part}
            part.update(dict.fromkeys([*slots, *[slot for slot, other in part.items() if other in joined]], i))
        found: dict[int, list[Assignable]] = {}
        for step in group.steps:
            found.setdefault(part[step.results[0]], []).append(step)
        return list(found.values())

    def append(self, group: _Group, steps: list[Assignable]) -> None:
        if len(steps) == 1 and not self.pays(steps[0]):
            self.steps += steps
            return
        built = _Builder(self, group, steps)
        if built.slots > MOST_SLOTS or len(built.code) > MOST_OPERATIONS:
            self.append(group, steps[: len(steps) // 2])
            self.append(group, steps[len(steps) // 2 :])
            return
        self.steps.append(built.step())

    def pays(self, step: Assignable) -> bool:
        """Whether one step is worth a chain of its own."""
        number = NUMBERS[step.function]
        return number in _SLOW or (number != lanes.COPY and self.facts[step.operands[-1]].letter in _HALVES)


def _is_made(number: int, letter: str, result: str) -> bool:
    """Whether an operation on numbers of one dtype gives those of another. Both by their letters."""
    if number == lanes.COPY:
        return result in _SINGLE
    return result == ("?" if lanes.GT <= number <= lanes.NE else letter)


def _times(given: Fact, shape: tuple[int, ...]) -> int | None:
    """How many times each element of an operand stands in a row, all of them again and again: 0 where it is of the shape, or one number. None if it
    is spread otherwise, as along two dimensions with one of its own between."""
    if given.shape == shape or given.size == 1:
        return 0
    sizes = (*(1,) * (len(shape) - len(given.shape)), *given.shape)
    own = [i for i, n in enumerate(sizes) if n != 1]
    first, last = own[0], own[-1] + 1
    if not given.contiguous or sizes[first:last] != shape[first:last]:
        return None
    return math.prod(shape[last:])


class _Builder:
    """A chain of steps: its operands, results and code."""

    def __init__(self, finder: _Finder, group: _Group, steps: list[Assignable]) -> None:
        self.finder, self.group, self.own = finder, group, steps
        facts, readers, inside = finder.facts, finder.readers, {id(s) for s in steps}
        made = [s.results[0] for s in steps]
        own = set(made)
        self.operands = list(dict.fromkeys([slot for s in steps for slot in s.operands if slot not in own]))
        self.results = [slot for slot in made if not inside.issuperset(readers.get(slot, ()))]
        self.code: list[tuple[int, int, int, int, int]] = []
        self.free: list[int] = []
        self.registers = 0
        known = len(self.operands) + len(self.results)
        place = {slot: i for i, slot in enumerate([*self.operands, *self.results])}
        self.numbers = {place[slot] for slot in self.operands if facts[slot].size == 1 != group.size}
        where = {slot: place[slot] for slot in self.results if facts[slot].letter in "fd"}
        where |= {slot: place[slot] for slot in self.operands if facts[slot].size == 1 != group.size or self.is_direct(facts[slot])}
        last = {slot: i for i, s in enumerate(steps) for slot in s.operands}
        for i, s in enumerate(steps):
            for slot in s.operands:
                if slot not in where:  # a mask from elsewhere, half precision, or what is spread
                    where[slot] = self.register(known)
                    times = _times(facts[slot], group.shape) or 0
                    load, _, _ = _HALVES.get(facts[slot].letter, _MASKS)
                    self.code.append((lanes.SPREAD if times else load, where[slot], place[slot], times, 0))
            slot = s.results[0]
            if slot not in where:
                where[slot] = self.register(known)
            a, b, c = (*[where[operand] for operand in s.operands], 0, 0)[:3]
            only_here = i > 0 and last.get(made[i - 1]) == i and made[i - 1] not in place
            if not (only_here and self.joined(s, where[made[i - 1]], where[slot], a, b)):
                self.code.append((NUMBERS[s.function], where[slot], a, b, c))
            _, rounds, keep = _HALVES.get(facts[slot].letter, _MASKS)
            if rounds and last.get(slot, i) > i and NUMBERS[s.function] not in _EXACT:
                self.code.append((rounds, where[slot], where[slot], 0, 0))
            if slot in place and where[slot] != place[slot]:
                self.code.append((keep, place[slot], where[slot], 0, 0))
            dead = [where[operand] for operand in dict.fromkeys([*s.operands, slot]) if last.get(operand, i) == i]
            self.free += [register for register in dead if register >= known]
        self.slots = known + self.registers

    def joined(self, step: Assignable, made: int, result: int, a: int, b: int) -> bool:
        """Make one operation of a step and the last one of the code, if that made the operand at `made` and there is one that does both.
        False, and nothing has changed, if not. Nothing else may read that operand."""
        which, (before, out, x, y, _), other = NUMBERS[step.function], self.code[-1], a if b == made else b
        if out != made or other == made:
            return False
        if before == lanes.MUL and (which == lanes.ADD or (which == lanes.SUB and b == made)):
            x, y = (y, x) if x in self.numbers else (x, y)
            both = (lanes.SCALED_ADD if y in self.numbers else lanes.MUL_ADD) + (which == lanes.SUB)
            self.code[-1] = (both, result, x, y, other)
            return True
        if before == lanes.SQRT and which == lanes.ADD:
            self.code[-1] = (lanes.SQRT_ADD, result, x, other, 0)
            return True
        return False

    def is_direct(self, given: Fact) -> bool:
        return given.letter in "fd" and _times(given, self.group.shape) == 0

    def register(self, known: int) -> int:
        if not self.free:
            self.registers += 1
            return known + self.registers - 1
        return self.free.pop()

    def step(self) -> Chained:
        """The chain as a step."""
        facts, group = self.finder.facts, self.group
        operands = [(facts[s].letter, facts[s].size, facts[s].size == 1 != group.size) for s in self.operands]
        results = [facts[s].letter for s in self.results]
        otherwise = _one_by_one(self.own, self.operands, self.results)
        strided = [i for i, s in enumerate(self.operands) if not facts[s].contiguous]
        made = Chain(group.shape, np.dtype(group.letter), operands, results, self.code, self.registers, strided, otherwise)
        return Chained(made, self.operands, self.results, len(results) == 1, {}, (self.told(made.is_shared()),))

    def told(self, shared: bool) -> cost.ChainWork:
        """What the chain does. shared: by threads."""
        size, itemsize = self.group.size, np.dtype(self.group.letter).itemsize
        functions = sum([lanes.EXP <= NUMBERS[s.function] <= lanes.COS for s in self.own])
        large = [slot for slot in (*self.operands, *self.results) if self.finder.facts[slot].size == size]
        return cost.ChainWork(size, itemsize, len(self.own) - functions, functions, large, shared)


def _one_by_one(steps: list[Assignable], operands: list[int], results: list[int]) -> Callable[..., Any]:
    """What a chain of these steps does, by NumPy."""

    def run(*arrays: Any) -> Any:
        values = dict(zip(operands, arrays, strict=True))
        for step in steps:
            values[step.results[0]] = step.function(*[values[slot] for slot in step.operands])
        return values[results[0]] if len(results) == 1 else [values[slot] for slot in results]

    return run
