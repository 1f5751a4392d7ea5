"""Rolling: a program in which a body repeats, as a program with loops. A new length of such a loop costs no trace and no compilation.

`repeats.py` finds what repeats, `loops.py` says what the arguments of a body are, `rolled.py` is the program with loops as a JAX function, and
`looped.py` runs it by the interpreter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.copying import own
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.rolling.looped import Looped
from torchgrad_jax.runtime.rolling.loops import Across, Counted, Loop, Own, Spread, Stacked, loop_of
from torchgrad_jax.runtime.rolling.repeats import FIRST_NUMBER, NUMBERS, Flat, flat, stretches
from torchgrad_jax.runtime.rolling.rolled import Operation, Plan, Reference, RolledLoop, function

# What makes a program with loops worth it: iterations of one of them, and calls that it has fewer.
LEAST_ITERATIONS, LEAST_FEWER = 4, 12
# Results of single iterations that are outputs are picked out one by one; of more than this many the whole buffer is returned.
MOST_PICKED = 4
# Buffers have room for at least this many iterations if they stay below this size together, so that most lengths share one compilation.
LEAST_CAPACITY, SMALL_BYTES, LARGE_BYTES = 64, 1 << 18, 1 << 26

_KINDS = {first >> 40: kind for kind, first in NUMBERS.items()}
_DTYPES = {"f": np.float64, "i": np.int64, "c": np.complex128}


def roll(calls: list[Any], outputs: Sequence[int], inputs: Sequence[int]) -> Rolled | None:
    """The program with loops for what repeats in it. None where nothing worth it does.

    calls: the operations, as a Step or a Call has them; outputs: the slots that are wanted; inputs: which leaves the arguments after the numbers are.
    """
    if len(calls) < LEAST_FEWER:
        return None
    program = flat(calls)
    wanted = [int(program.renumbered[slot]) if slot >= 0 else slot for slot in outputs]
    loops: list[Loop] = []
    for stretch in stretches(program):
        loop = loop_of(program, calls, stretch, loops)
        if loop is not None and _few_wanted(loop, wanted, calls):
            loops.append(loop)
    fewer = sum(loop.period * (loop.count - 1) for loop in loops)
    if fewer < LEAST_FEWER or max(loop.count for loop in loops) < LEAST_ITERATIONS:
        return None
    return _Roller(program, calls, loops).rolled(wanted, inputs)


def _few_wanted(loop: Loop, wanted: list[int], calls: list[Any]) -> bool:
    """Whether the outputs that are results of single iterations are few, or can be taken out of a buffer on the host and are worth it."""
    counts = Counter([loop.place(a)[1] for a in wanted if loop.base <= a < loop.limit - loop.width])
    if all(count <= MOST_PICKED for count in counts.values()):
        return True
    body = calls[loop.begin : loop.begin + loop.period]
    return loop.count >= 2 * LEAST_ITERATIONS and all(a.device is CPU for c in body for a in c.signature.avals)


class Rolled:
    """A program with loops.

    key: programs with equal keys have the same function. sizes: what it is given at run time beside numbers and inputs. compiling: how many
    operations are in its compiled form. packed: how many inputs and outputs are put together, or taken apart, on the host at each run.
    """

    __slots__ = ("key", "sizes", "compiling", "packed", "_inputs", "_given", "_stacks", "_places", "_outputs")

    def __init__(
        self, plan: Plan, sizes: list[int], inputs: list[int], given: Sequence[int], stacks: list[list[int]],
        places: dict[str, tuple[np.ndarray, np.ndarray]], outputs: list[tuple[int, int | None]],
    ) -> None:  # fmt: skip
        self.key = plan
        self.sizes = np.array(sizes, np.int64)
        self.compiling = sum(2 + len(item.body) if isinstance(item, RolledLoop) else 1 for item in plan.items)
        index = {leaf: i for i, leaf in enumerate(given)}
        self._given = len(given)
        self._inputs = [index[-1 - a] for a in inputs]
        self._stacks = [[index[-1 - a] for a in stack] for stack in stacks]
        self._places, self._outputs = places, outputs
        self.packed = sum(map(len, stacks)) + sum([t is not None for _, t in outputs])

    def function(self) -> Callable[..., list[Any]]:
        """The JAX function of the sizes and of what `arguments` returns."""
        return function(self.key)

    def arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """What the function takes, made of what the program would take without loops: first the arrays of numbers, then the inputs."""
        numbers, inputs, stacks = self._apart(arguments)
        made: list[Any] = [*numbers.values(), *inputs]
        for stack in stacks:
            first = np.asarray(stack[0])
            rows = np.zeros((self.key.capacity, *first.shape), first.dtype)
            for t, row in enumerate(stack):
                rows[t] = row
            made.append(rows)
        return made

    def _apart(self, arguments: Sequence[Any]) -> tuple[dict[str, np.ndarray], list[Any], list[list[Any]]]:
        """The arrays of numbers by their kind, the inputs, and those that are stacks."""
        plan = self.key
        head = len(arguments) - self._given
        given = {a.dtype.kind: np.asarray(a) for a in arguments[:head]}
        numbers = {}
        for kind, columns, singles in plan.numbers:
            packed = numbers[kind] = np.zeros(columns * plan.capacity + singles, _DTYPES[kind])
            source, target = self._places[kind]
            packed[target] = given[kind][source]
        return numbers, [arguments[head + i] for i in self._inputs], [[arguments[head + i] for i in stack] for stack in self._stacks]

    def interpreted(self, looped: Looped, arguments: Sequence[Any]) -> list[Any]:
        """What the program returns, by the interpreter, of what `arguments` takes. looped: that of all that differ in their capacity alone."""
        outs = looped(self.key.capacity, self.sizes.tolist(), *self._apart(arguments))
        found = [outs[i] if t is None else own(outs[i][t]) for i, t in self._outputs]
        return [*found, outs[-1]] if self.key.checked else found

    def results(self, outs: Sequence[Any]) -> list[Any]:
        """The outputs of the program, and the outcome of its checks if it has any, of what the function returns."""
        whole = {i: np.asarray(outs[i]) for i, t in self._outputs if t is not None}
        found = [outs[i] if t is None else _own(whole[i][t]) for i, t in self._outputs]
        return [*found, outs[-1]] if self.key.checked else found


def _own(row: Any) -> np.ndarray:
    """A row that does not keep the buffer alive, and that nobody writes to. A row of a vector is one of NumPy's scalars."""
    row = np.array(row)
    row.flags.writeable = False
    return row


class _Roller:
    """Makes the Rolled of a program with known loops. Whatever has a number of its own gets it when it is first met in the order of the
    rolled program, so that programs which differ in lengths alone get the same Plan."""

    def __init__(self, program: Flat, calls: list[Any], loops: list[Loop]) -> None:
        self.program, self.calls, self.loops = program, calls, loops
        self.items: list[Any] = []
        self.slots: dict[int, int] = {}  # results outside of loops, and fixed ones of the first iteration
        self.end = 0
        self.sizes: list[int] = []
        self.inputs: dict[int, int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.columns: dict[str, dict[tuple[int, int, int], int]] = {}
        self.singles: dict[str, dict[int, int]] = {}
        self.picks: dict[tuple[int, int, int], int] = {}
        self.kept: list[dict[int, None]] = [{} for _ in loops]
        self.last: list[dict[int, None]] = [{} for _ in loops]

    def rolled(self, wanted: list[int], inputs: Sequence[int]) -> Rolled:
        """The Rolled with these outputs; `inputs`: which leaves are given."""
        begins = {loop.begin: number for number, loop in enumerate(self.loops)}
        i, n = 0, len(self.calls)
        while i < n:
            number = begins.get(i)
            if number is None:
                self._single(i)
                i += 1
            else:
                self.items.append(self._loop(number))
                i = self.loops[number].end
        outputs, places = self._outputs(wanted)
        kept = [[(r, self._aval(number, r)) for r in results] for number, results in enumerate(self.kept)]
        capacity = self._capacity(sum(aval.nbytes for results in kept for _, aval in results))
        last = [tuple([(r, self._aval(number, r)) for r in results]) for number, results in enumerate(self.last)]
        items, number = [], 0
        for item in self.items:
            if type(item) is RolledLoop:
                item = item._replace(kept=tuple(kept[number]), last=last[number])
                number += 1
            items.append(item)
        kinds = [k for k in _DTYPES if k in self.columns or k in self.singles]
        numbers = tuple([(k, len(self.columns.get(k, ())), len(self.singles.get(k, ()))) for k in kinds])
        checked = any(c.signature.check is not None for c in self.calls)
        plan = Plan(capacity, numbers, len(self.inputs), tuple(items), outputs, checked)
        taken = {k: self._places(k, capacity) for k in kinds}
        return Rolled(plan, self.sizes, list(self.inputs), inputs, [list(s) for s in self.stacks], taken, places)

    # ------------------------------------------------------------------ operations

    def _single(self, call: int) -> None:
        """An operation outside of loops."""
        first = self.program.first
        given = self.program.args[self.program.starts[call] : self.program.starts[call + 1]].tolist()
        args = tuple([self._reference(a) for a in given])
        self._append(call, args, range(int(first[call]), int(first[call + 1])))

    def _append(self, call: int, args: tuple[Reference, ...], results: range) -> None:
        end = self.end + len(results)
        self.items.append(Operation(self.calls[call].signature, args, self.end, end))
        self.slots.update(zip(results, range(self.end, end), strict=True))
        self.end = end

    def _loop(self, number: int) -> RolledLoop:
        loop, first = self.loops[number], self.program.first
        trip = self._size(loop.count)
        carries: dict[tuple[Any, ...], tuple[Reference, Reference]] = {}
        body = []
        places = [(call, int(first[call]), int(first[call + 1])) for call in range(loop.begin, loop.begin + loop.period)]
        for (call, slot, end), given in zip(places, loop.arguments, strict=True):
            if slot - loop.base in loop.fixed:
                self._append(call, tuple([self._fixed(loop, a) for a in given]), range(slot, end))
        # After these: what comes earlier in the body may read one of the iteration before.
        for (call, slot, end), given in zip(places, loop.arguments, strict=True):
            if slot - loop.base not in loop.fixed:
                args = tuple([self._argument(loop, a, carries) for a in given])
                body.append(Operation(self.calls[call].signature, args, slot - loop.base, end - loop.base))
        return RolledLoop(trip, tuple(body), tuple(carries.values()), (), ())

    def _fixed(self, loop: Loop, argument: Any) -> Reference:
        """What an operation that is taken out of the loop reads."""
        return self._reference(loop.base + argument.result if type(argument) is Own else argument.value)

    def _argument(self, loop: Loop, argument: Any, carries: dict[tuple[Any, ...], tuple[Reference, Reference]]) -> Reference:
        """What an operation of the body reads."""
        if type(argument) is Own:
            return self._own(loop, argument, carries)
        if type(argument) is Counted:
            kind = _KINDS[argument.value >> 40]
            series = self.columns.setdefault(kind, {})
            return "column", kind, series.setdefault((argument.value - NUMBERS[kind], argument.step, loop.count), len(series))
        if type(argument) is Stacked:
            stack = tuple([argument.value + argument.step * t for t in range(loop.count)])
            return "stack", self.stacks.setdefault(stack, len(self.stacks))
        if type(argument) is Spread:
            return "spread", tuple([self._reference(argument.value + argument.step * t) for t in range(loop.count)])
        if type(argument) is Across:
            across = self.loops[argument.loop]
            if argument.result in across.fixed:
                return "outer", self._reference(across.base + argument.result)
            self.kept[argument.loop].setdefault(argument.result)
            return "buffer", argument.loop, argument.result, self._size(argument.at), argument.step
        return "outer", self._reference(argument.value)

    def _own(self, loop: Loop, argument: Own, carries: dict[tuple[Any, ...], tuple[Reference, Reference]]) -> Reference:
        result, lag, initial = argument
        source: Reference = ("outer", self._reference(loop.base + result)) if result in loop.fixed else result
        for i in range(1, lag + 1):  # the i-th holds the value of i iterations before
            key = (result, initial[lag - i :])
            if key not in carries:
                carries[key] = self._reference(initial[lag - i]), source
            source = "carry", list(carries).index(key)
        return source

    # ------------------------------------------------------------------ references

    def _reference(self, a: int) -> Reference:
        """How an operation outside of loops reads an argument."""
        if a >= FIRST_NUMBER:
            kind = _KINDS[a >> 40]
            singles = self.singles.setdefault(kind, {})
            return "number", kind, singles.setdefault(a - NUMBERS[kind], len(singles))
        if a < 0:
            return "input", self.inputs.setdefault(a, len(self.inputs))
        slot = self.slots.get(a)
        if slot is not None:
            return slot
        number, t, result = self._place(a)
        loop = self.loops[number]
        if result in loop.fixed:
            return self.slots[loop.base + result]
        if t == loop.count - 1:
            self.last[number].setdefault(result)
            return "last", number, result
        self.kept[number].setdefault(result)
        place = number, result, t
        if place not in self.picks:
            self.picks[place] = self._size(t)
        return "pick", number, result, self.picks[place]

    def _place(self, a: int) -> tuple[int, int, int]:
        """The loop that a result is of, the iteration, and the number of the result in the body."""
        number = next(number for number, loop in enumerate(self.loops) if loop.base <= a < loop.limit)
        return number, *self.loops[number].place(a)

    def _size(self, size: int) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _outputs(self, wanted: list[int]) -> tuple[tuple[Reference, ...], list[tuple[int, int | None]]]:
        """The function's outputs; and for each output of the program which one it is, or is a row of."""
        singly = {a: self._place(a) for a in wanted if a >= 0 and a not in self.slots}
        counts = Counter([(number, result) for number, t, result in singly.values() if t < self.loops[number].count - 1])
        found: dict[Reference, int] = {}
        places: list[tuple[int, int | None]] = []
        for a in wanted:
            number, t, result = singly.get(a, (0, 0, 0))
            if a in singly and counts[number, result] > MOST_PICKED and result not in self.loops[number].fixed:
                self.kept[number].setdefault(result)
                places.append((found.setdefault(("whole", number, result), len(found)), t))
            else:
                places.append((found.setdefault(self._reference(a), len(found)), None))
        return tuple(found), places

    # ------------------------------------------------------------------ room

    def _aval(self, number: int, result: int) -> Any:
        loop = self.loops[number]
        call = int(self.program.owner[loop.base + result])
        return self.calls[call].signature.avals[loop.base + result - int(self.program.first[call])]

    def _capacity(self, nbytes: int) -> int:
        """For how many iterations there is room: a power of two, or where that is much memory a multiple of a sixteenth of one."""
        most = max(loop.count for loop in self.loops)
        capacity = 1 << (most - 1).bit_length()
        while capacity < LEAST_CAPACITY and 2 * capacity * nbytes <= SMALL_BYTES:
            capacity *= 2
        part = capacity // 16
        return -(-most // part) * part if part and capacity * nbytes > LARGE_BYTES else capacity

    def _places(self, kind: str, capacity: int) -> tuple[np.ndarray, np.ndarray]:
        """For the program's numbers of a kind that are read: which ones, and where they go."""
        source, target = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        series, singles = self.columns.get(kind, {}), self.singles.get(kind, {})
        for (place, step, count), i in series.items():
            source.append(place + step * np.arange(count))
            target.append(i * capacity + np.arange(count))
        source.append(np.array(list(singles), np.int64))
        target.append(len(series) * capacity + np.arange(len(singles)))
        return np.concatenate(source), np.concatenate(target)
