"""Finds chains among the steps of a program: element-wise ones of one shape and dtype that can be carried out together (`blocks`).

They need not follow one another: a chain waits until something else reads one of its results, unless it is of large arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.runtime.baseline import cost, lanes
from torchgrad_jax.runtime.baseline.blocks import AS_IT_IS, BFLOAT16, FIRST, MOST_OPERATIONS, MOST_SLOTS, Chain, Pattern, Together
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
# The functions that there are of float64, too.
_OF_BOTH = {lanes.EXP, lanes.TANH, lanes.LOGISTIC, lanes.LOG, lanes.LOG1P, lanes.SIN, lanes.COS}
# What of half precision is half precision again.
_EXACT = {lanes.NEG, lanes.ABS, lanes.LARGER, lanes.SMALLER, lanes.SIGN, lanes.SELECT, lanes.CLAMP}
# NumPy goes from run to run of operands that are smaller than the result: 8 ns each. A chain pays from so many elements on, where runs are shorter.
_SPREAD, _RUN = 256, 64
# Beyond this a group is closed; it must fit into a chain with what masks take.
_MOST = MOST_OPERATIONS // 2
# What has more elements waits for nothing but what is small, as numbers of a step's are: its operands would be kept for longer.
_LARGE, _SMALL = 1 << 18, 1 << 12
# From so many operations on numbers on they are shared, and so many at once: of more, what is not needed any more would be kept for longer.
_WORTH, _ENOUGH = 1 << 18, 1 << 20


class Fact(NamedTuple):
    """What an array of a slot is, each time. repeated: the dimensions along which it has the same elements again and again."""

    shape: tuple[int, ...]
    letter: str
    size: int
    contiguous: bool
    repeated: tuple[int, ...] = ()

    def once(self) -> tuple[int, ...]:
        """The shape of each of its elements once."""
        return tuple([1 if d in self.repeated else n for d, n in enumerate(self.shape)]) if self.repeated else self.shape

    def is_number(self) -> bool:
        """Whether it is one number."""
        return self.size == 1 or (bool(self.repeated) and math.prod(self.once()) == 1)


def fact(array: Any) -> Fact:
    """What is so of an array."""
    contiguous, strides = array.flags.c_contiguous, array.strides
    if contiguous or 0 not in strides:
        return Fact(array.shape, array.dtype.char, array.size, contiguous)
    repeated = tuple([d for d, (n, step) in enumerate(zip(array.shape, strides, strict=True)) if step == 0 and n > 1])
    return Fact(array.shape, array.dtype.char, array.size, contiguous, repeated)


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
        for other in list(self.open.values()):
            if other is not group and (not other.made.isdisjoint(step.operands) or (other.size > _LARGE and not self.waits(step))):
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

    def waits(self, step: Assignable) -> bool:
        """Whether a step is so small that large ones may wait for it."""
        return all([self.facts[slot].size <= _SMALL for slot in (*step.operands, *step.results)])

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
        single_only = lanes.EXP <= number <= lanes.COPY and number not in _OF_BOTH
        if registers not in ("f" if single_only else "fd") or [f.letter for f in given] != expected or not result.size:
            return None
        if not _is_made(number, letter, result.letter) or any([_stands(f, result.shape) is None for f in given]):
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
            slots = [slot for slot in (*step.operands, *step.results) if self.facts[slot].size == group.size and not self.facts[slot].repeated]
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
        if number in _SLOW or (number != lanes.COPY and self.facts[step.operands[-1]].letter in _HALVES):
            return True
        result = self.facts[step.results[0]]
        return result.size >= _SPREAD and min([_run(self.facts[slot], result) for slot in step.operands]) < _RUN


def _is_made(number: int, letter: str, result: str) -> bool:
    """Whether an operation on numbers of one dtype gives those of another. Both by their letters."""
    if number == lanes.COPY:
        return result in _SINGLE
    return result == ("?" if lanes.GT <= number <= lanes.NE else letter)


def pattern_of(own: tuple[int, ...], shape: tuple[int, ...]) -> Pattern | None:
    """How the elements of an array, of sizes 1 but where they are those of `shape`, which has as many dimensions, stand in what is made as large.
    None if that is as no pattern says: along three dimensions or more with others between."""
    groups: list[list[int]] = []  # sizes of neighbouring dimensions that it has, or has not
    has = True
    for n, whole in zip(own, shape, strict=True):
        if n != whole and n != 1:
            return None
        if whole == 1:
            continue
        if (n == whole) == has and groups:
            groups[-1][0] *= whole
        elif n == whole or groups:
            groups.append([whole])
        has = n == whole
    times = 1 if has else groups.pop()[0]
    if len(groups) == 1:
        return times, groups[0][0], 1
    return (times, groups[2][0], groups[1][0]) if len(groups) == 3 else None


def _stands(given: Fact, shape: tuple[int, ...]) -> Pattern | None:
    """How an operand stands in the results, AS_IT_IS where it is of their shape, or one number. None if a chain cannot read it so."""
    if given.is_number() or (given.shape == shape and not given.repeated):
        return AS_IT_IS
    own = given.once()
    return pattern_of((*(1,) * (len(shape) - len(own)), *own), shape)


def _run(given: Fact, result: Fact) -> int:
    """How many elements of an operand NumPy takes in a row: those that follow one another, or the same one again and again."""
    times, inner, _ = _stands(given, result.shape) or AS_IT_IS
    return times if times > 1 else inner or result.size


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
        self.numbers = {place[slot] for slot in self.operands if facts[slot].is_number() and group.size != 1}
        self.patterns: dict[int, Pattern] = {}
        self.sliced: list[int] = []
        where = {slot: place[slot] for slot in self.results if facts[slot].letter in "fd"}
        where |= {slot: place[slot] for slot in self.operands if place[slot] in self.numbers or self.is_direct(facts[slot])}
        last = {slot: i for i, s in enumerate(steps) for slot in s.operands}
        for i, s in enumerate(steps):
            for slot in s.operands:
                if slot not in where:  # a mask from elsewhere, half precision, or what is spread
                    where[slot] = self.register(known)
                    pattern = _stands(facts[slot], group.shape) or AS_IT_IS
                    load, _, _ = _HALVES.get(facts[slot].letter, _MASKS)
                    if pattern != AS_IT_IS:
                        load, self.patterns[place[slot]] = lanes.SPREAD, pattern
                    elif self.is_sliced(facts[slot]):
                        load = lanes.SLICED
                        self.sliced.append(place[slot])
                    self.code.append((load, where[slot], place[slot], 0, 0))
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
        return given.letter in "fd" and _stands(given, self.group.shape) == AS_IT_IS and not self.is_sliced(given)

    def is_sliced(self, given: Fact) -> bool:
        """Whether an operand is read as it lies, with gaps between its elements: no part of it is repeated."""
        return not given.contiguous and not given.repeated and given.shape == self.group.shape and self.group.size > 1

    def register(self, known: int) -> int:
        if not self.free:
            self.registers += 1
            return known + self.registers - 1
        return self.free.pop()

    def step(self) -> Chained:
        """The chain as a step."""
        facts, group = self.finder.facts, self.group
        operands = [(facts[s].letter, math.prod(facts[s].once()), i in self.numbers) for i, s in enumerate(self.operands)]
        results = [facts[s].letter for s in self.results]
        otherwise = _one_by_one(self.own, self.operands, self.results)
        strided = [i for i, s in enumerate(self.operands) if not facts[s].contiguous and i not in self.sliced]
        repeated = {i: _index_of_once(facts[s]) for i, s in enumerate(self.operands) if facts[s].repeated}
        made = Chain(
            group.shape, np.dtype(group.letter), operands, results, self.code, self.registers, strided, otherwise, self.patterns, repeated,
            self.sliced,
        )  # fmt: skip
        return Chained(made, self.operands, self.results, len(results) == 1, {}, (self.told(made.is_shared()),))

    def told(self, shared: bool) -> cost.ChainWork:
        """What the chain does. shared: by threads."""
        size, itemsize = self.group.size, np.dtype(self.group.letter).itemsize
        functions = sum([lanes.EXP <= NUMBERS[s.function] <= lanes.COS for s in self.own])
        large = [slot for slot in (*self.operands, *self.results) if self.finder.facts[slot].size == size and not self.finder.facts[slot].repeated]
        return cost.ChainWork(size, itemsize, len(self.own) - functions, functions, large, shared)


def _index_of_once(given: Fact) -> tuple[Any, ...]:
    return tuple([FIRST if d in given.repeated else slice(None) for d in range(len(given.shape))])


def _one_by_one(steps: list[Assignable], operands: list[int], results: list[int]) -> Callable[..., Any]:
    """What a chain of these steps does, by NumPy."""

    def run(*arrays: Any) -> Any:
        values = dict(zip(operands, arrays, strict=True))
        for step in steps:
            values[step.results[0]] = step.function(*[values[slot] for slot in step.operands])
        return values[results[0]] if len(results) == 1 else [values[slot] for slot in results]

    return run
