"""What each argument of a repeated body is: from outside, of the same iteration, carried over, of an earlier loop, a number, or an input."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.rolling.repeats import FIRST_NUMBER, LEAST_COUNT, LEAST_SAVED, Flat, Stretch

# From how many iterations back a body may read its own results.
MOST_LAG = 4
# Inputs that change with the iteration are put into one array on the host at each run: small ones, and where many iterations make up for it.
LEAST_STACKED, STACKED_BYTES = 8, 1 << 16


class Outside(NamedTuple):
    """The same value in all iterations."""

    value: int


class Counted(NamedTuple):
    """A Python number; from one iteration to the next its place moves on by `step`."""

    value: int
    step: int


class Stacked(NamedTuple):
    """An input of its own for each iteration."""

    value: int
    step: int


class Spread(NamedTuple):
    """A result of its own for each iteration, all of one earlier operation, such as `unbind`."""

    value: int
    step: int


class Own(NamedTuple):
    """A result of the body, `lag` iterations before; `initial`: what it is in the first `lag` iterations."""

    result: int
    lag: int
    initial: tuple[int, ...]


class Across(NamedTuple):
    """A result of an earlier loop: of its iteration `at`, moving on by `step`."""

    loop: int
    result: int
    at: int
    step: int


class Loop:
    """A stretch whose arguments are all of a known kind.

    base: its first result; width: how many an iteration has, numbered from 0 as results of the body. arguments: those of each call of the body.
    fixed: results of the body that are the same in all iterations.
    """

    __slots__ = ("begin", "period", "count", "base", "width", "arguments", "fixed")

    def __init__(self, program: Flat, calls: list[Any], stretch: Stretch, arguments: list[list[Any]]) -> None:
        self.begin, self.period, self.count = stretch
        self.base = int(program.first[self.begin])
        self.width = int(program.first[self.begin + self.period]) - self.base
        self.arguments = arguments
        self.fixed: set[int] = set()
        for i, given in enumerate(arguments):
            if calls[self.begin + i].signature.check is None and all(self._is_fixed(a) for a in given):
                self.fixed.update(range(int(program.first[self.begin + i]) - self.base, int(program.first[self.begin + i + 1]) - self.base))

    def _is_fixed(self, argument: Any) -> bool:
        return type(argument) is Outside or (type(argument) is Own and argument.lag == 0 and argument.result in self.fixed)

    @property
    def end(self) -> int:
        return self.begin + self.period * self.count

    @property
    def limit(self) -> int:
        """Past its last result."""
        return self.base + self.width * self.count

    def place(self, result: int) -> tuple[int, int]:
        """The iteration that a result of the program is of, and which one of the body's results it is."""
        return divmod(result - self.base, self.width)


def loop_of(program: Flat, calls: list[Any], stretch: Stretch, earlier: list[Loop]) -> Loop | None:
    """The loop that a stretch is, without the iterations at its ends in which an argument is of another kind. None if nothing worth it is left."""
    while stretch.count >= LEAST_COUNT and stretch.saved >= LEAST_SAVED:
        found = _Reading(program, calls, stretch, earlier)
        if found.refused:
            return None
        if found.begin == 0 and found.end == stretch.count:
            return Loop(program, calls, stretch, found.arguments)
        stretch = Stretch(stretch.begin + found.begin * stretch.period, stretch.period, found.end - found.begin)
    return None


class _Reading:
    """The arguments of a stretch. begin, end: the iterations in which each is what it is found to be; refused: one of them is nothing of the kind."""

    def __init__(self, program: Flat, calls: list[Any], stretch: Stretch, earlier: list[Loop]) -> None:
        self.earlier = earlier
        self.begin, self.end, self.refused = 0, stretch.count, False
        self.count = stretch.count
        self.base = int(program.first[stretch.begin])
        self.width = int(program.first[stretch.begin + stretch.period]) - self.base
        self.owner = program.owner
        self.arguments: list[list[Any]] = []
        starts, p = program.starts, stretch.period
        for i in range(stretch.begin, stretch.begin + p):
            zeroth, first, second = (program.args[starts[c] : starts[c + 1]].tolist() for c in (i, i + p, i + 2 * p))
            columns = zip(zeroth, first, second, calls[i].signature.specs, strict=True)
            self.arguments.append([self._argument(*column) for column in columns])

    def _argument(self, zeroth: int, first: int, second: int, spec: Any) -> Any:
        step = second - first
        last = first + (self.count - 2) * step
        if first >= FIRST_NUMBER:
            return Counted(zeroth, step)
        if first < 0:
            return Outside(zeroth) if step == 0 else self._stacked(zeroth, step, last, spec)
        if step == 0:
            if first >= self.base:  # of the first iterations: these come before the loop, then
                self.begin = max(self.begin, (first - self.base) // self.width + 1)
            return Outside(first)
        if step == self.width and last >= self.base:
            return self._own(zeroth, first, step)
        if 0 <= zeroth < self.base and 0 <= last < self.base and self.owner[zeroth] == self.owner[first] == self.owner[last]:
            return Spread(zeroth, step)
        return self._across(first, step)

    def _stacked(self, zeroth: int, step: int, last: int, spec: Any) -> Any:
        if last >= 0 or self.count < LEAST_STACKED or spec.nbytes > STACKED_BYTES or spec.device is not CPU:
            self.refused = True
        return Stacked(zeroth, step)

    def _own(self, zeroth: int, first: int, step: int) -> Any:
        lag = max(0, -((first - self.base) // self.width) + 1)
        if lag > MOST_LAG or (lag == 0 and zeroth != first - step):
            self.refused = True
        initial = (zeroth, *[first + i * step for i in range(lag - 1)]) if lag else ()
        return Own((first - self.base) % self.width, lag, initial)

    def _across(self, first: int, step: int) -> Any:
        middle = first + (self.count // 2 - 1) * step
        for number, loop in enumerate(self.earlier):
            if loop.base <= middle < loop.limit and step % loop.width == 0:
                at, result = loop.place(first - step)
                by = step // loop.width
                # The iterations t with 0 <= at + by * t < loop.count.
                low, high = (-(at // by), (loop.count - 1 - at) // by + 1) if by > 0 else (-((loop.count - 1 - at) // -by), at // -by + 1)
                self.begin, self.end = max(self.begin, low), min(self.end, high)
                return Across(number, result, at, by)
        self.refused = True
        return None
