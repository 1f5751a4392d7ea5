"""Repetition in a program: stretches of calls that are one loop body over and over.

A body repeats where the same operations come again after `period` calls and each of their arguments moves on by a constant step from one
iteration to the next, in a numbering of all results in the order of the program. The step says what the argument is: 0, something from outside;
the number of results of an iteration, something of this iteration or the one before; that of an earlier loop, forwards or backwards, that loop's
result in its own order or in reverse.

All of this is arithmetic on a few long arrays, because it runs for each new length of a loop: 0.5 ms and 1 us a call.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

# Numbers are arguments from here on: their places among the program's numbers of one kind.
NUMBERS = {"f": 1 << 40, "i": 2 << 40, "c": 3 << 40}
FIRST_NUMBER = 1 << 40
# Three iterations show that the steps between them are constant.
LEAST_COUNT = 3
# How many operations one stretch must save.
LEAST_SAVED = 4
# How far apart calls that look alike may be to tell a period: this many of the most frequent distances, and their small multiples.
DISTANCES, MULTIPLES = 6, 3
_WINDOW = 3


class Flat(NamedTuple):
    """A program as arrays.

    kinds: for each call the number of its signature. args: the arguments of all calls: results numbered from 0 in the order of the program,
    inputs as -1, -2, ..., numbers from FIRST_NUMBER on. starts: where each call's arguments begin. first: the first result of each call;
    owner: the call that each result is of. renumbered: for each slot the number of the result.
    """

    kinds: np.ndarray
    args: np.ndarray
    starts: np.ndarray
    first: np.ndarray
    owner: np.ndarray
    renumbered: np.ndarray


class Stretch(NamedTuple):
    """A loop: `count` times `period` calls from the call `begin` on."""

    begin: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.begin + self.period * self.count

    @property
    def saved(self) -> int:
        """How many calls the loop is shorter than the stretch."""
        return self.period * (self.count - 1)


def flat(calls: list[Any]) -> Flat:
    """The arrays of a program."""
    ids: dict[Any, int] = {}
    kinds = [ids.setdefault(c.signature, len(ids)) for c in calls]
    args: list[int] = []
    for c in calls:
        if c.numbers:
            places = iter(c.numbers)
            args.extend([a if type(a) is int else _number(next(places)) for a in c.args])
        else:
            args.extend(c.args)
    arity = [len(c.args) for c in calls]
    slots = np.array([c.slot for c in calls])
    counts = np.array([c.end for c in calls]) - slots
    first = np.concatenate([[0], np.cumsum(counts)])
    owner = np.repeat(np.arange(len(calls)), counts)
    old = np.arange(first[-1]) - first[owner] + slots[owner]
    renumbered = np.full(int(old.max()) + 1 if len(old) else 0, -1)
    renumbered[old] = np.arange(first[-1])
    found = np.array(args, np.int64)
    results = (found >= 0) & (found < FIRST_NUMBER)
    found[results] = renumbered[found[results]]
    return Flat(np.array(kinds), found, np.concatenate([[0], np.cumsum(arity)]), first, owner, renumbered)


def _number(number: tuple[str, int]) -> int:
    kind, place = number
    return NUMBERS[kind] + place


def stretches(program: Flat) -> list[Stretch]:
    """Stretches that repeat and do not overlap, in order: those that save most."""
    heap: list[tuple[int, int, int, int]] = []

    def offer(period: int, begin: int, end: int) -> None:
        count = (end - begin) // period
        if count >= LEAST_COUNT - 1:  # one more may be found before it
            heappush(heap, (-period * (count - 1), period, begin, end))

    for period in _periods(program):
        for begin, end in _with_period(program, period):
            offer(period, begin, end)
    chosen: list[Stretch] = []
    taken = np.zeros(len(program.kinds), np.bool_)
    while heap:
        _, period, begin, end = heappop(heap)
        used = np.flatnonzero(taken[begin:end])
        if len(used):
            for left, right in _intervals(~taken[begin:end]):
                offer(period, begin + left, begin + right)
            continue
        begin = _begun_earlier(program, period, begin, taken)
        stretch = Stretch(begin, period, (end - begin) // period)
        if stretch.count >= LEAST_COUNT and stretch.saved >= LEAST_SAVED:
            chosen.append(stretch)
            taken[begin : stretch.end] = True
    return sorted(chosen)


def _begun_earlier(program: Flat, period: int, begin: int, taken: np.ndarray) -> int:
    """Where the stretch begins if what its first iteration takes over from the one before may be anything: so far its pattern had to hold from the
    first iteration on, which the initial values of a loop do not fit."""
    initial: list[tuple[int, int, int]] = []
    reach = begin
    while reach > max(0, begin - period) and not taken[reach - 1] and _continues(program, period, reach - 1, initial):
        reach -= 1
    first = program.first
    for start in range(reach, begin):
        here = [(given, carried) for call, given, carried in initial if call >= start]
        if all(given < first[start] <= carried < first[start + period] for given, carried in here):
            return start
    return begin


def _continues(program: Flat, period: int, call: int, initial: list[tuple[int, int, int]]) -> bool:
    """Whether `call` is the one a period later but for initial values. These are added to `initial`: the call, the value, and what stands for it
    a period later."""
    kinds, starts, first = program.kinds, program.starts, program.first
    if kinds[call] != kinds[call + period]:
        return False
    width = first[call + 2 * period] - first[call + period]
    here, later, last = (program.args[starts[c] : starts[c + 1]].tolist() for c in (call, call + period, call + 2 * period))
    for a, b, c in zip(here, later, last, strict=True):
        if b - a != c - b:
            if c - b != width or not 0 <= b < FIRST_NUMBER or a >= FIRST_NUMBER:
                return False
            initial.append((call, a, b))
    return True


def _periods(program: Flat) -> list[int]:
    """The distances that most often lie between calls that look alike, each with its small multiples."""
    n = len(program.kinds)
    counts: Counter[int] = Counter()
    for with_inputs in (False, True):
        looks = _looks(program, with_inputs)
        order = np.argsort(looks, kind="stable")
        alike = looks[order[1:]] == looks[order[:-1]]
        distances = (order[1:] - order[:-1])[alike]
        for distance, times in enumerate(np.bincount(distances).tolist() if len(distances) else []):
            if times > 1:
                counts[distance] += times
    found = {distance * m for distance, _ in counts.most_common(DISTANCES) for m in range(1, MULTIPLES + 1)}
    return sorted([p for p in found if p * LEAST_COUNT <= n])


def _looks(program: Flat, with_inputs: bool) -> np.ndarray:
    """A hash of each call, the operations its arguments come from, and the next calls."""
    with np.errstate(over="ignore"):
        own = (program.kinds.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        args = program.args
        results = (args >= 0) & (args < FIRST_NUMBER)
        of_args = np.zeros(len(args), np.uint64)
        of_args[results] = own[program.owner[args[results]]] >> np.uint64(7)
        if with_inputs:
            inputs = args < 0
            of_args[inputs] = args[inputs].astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        summed = np.concatenate([[np.uint64(0)], np.cumsum(of_args * np.uint64(0x165667B19E3779F9))])
        looks = own + (summed[program.starts[1:]] - summed[program.starts[:-1]]) * np.uint64(0x27D4EB2F165667C5)
        whole = looks.copy()
        for i in range(1, min(_WINDOW, len(looks))):
            whole[:-i] = whole[:-i] * np.uint64(0x9E3779B97F4A7C15) + looks[i:]
    return whole


def _with_period(program: Flat, period: int) -> list[tuple[int, int]]:
    """The longest stretches of this period, with what of another iteration follows the last."""
    kinds = program.kinds
    found = []
    for left, right in _intervals(kinds[period:] == kinds[:-period]):
        if right + period - left >= LEAST_COUNT * period:
            found += _affine(program, period, left, right + period)
    return found


def _intervals(flags: np.ndarray) -> list[tuple[int, int]]:
    """Where the flags are true without a gap."""
    if not len(flags):
        return []
    edges = (np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist()  # np.diff takes 20 us
    if flags[0]:
        edges.insert(0, 0)
    if flags[-1]:
        edges.append(len(flags))
    return list(zip(edges[::2], edges[1::2], strict=True))


def _affine(program: Flat, period: int, begin: int, end: int) -> list[tuple[int, int]]:
    """The parts of the interval, in which the operations repeat, in which each argument moves by a constant step as well."""
    starts = program.starts
    width = int(starts[begin + period] - starts[begin])
    if not width:
        return [(begin, end)]
    args = program.args[starts[begin] : starts[end]]
    steps = args[width:] - args[:-width]
    uneven = np.flatnonzero(steps[width:] != steps[:-width]) + 2 * width
    # A call whose step is not the one before cannot be of the third iteration of a stretch or a later one.
    breaks = np.unique(np.searchsorted(starts, uneven + starts[begin], "right") - 1).tolist() if len(uneven) else []
    found, left = [], begin
    for right in [*breaks, end]:
        if right - left >= (LEAST_COUNT - 1) * period:
            found.append((left, right))
        left = max(left, right - 2 * period + 1)
    return found
