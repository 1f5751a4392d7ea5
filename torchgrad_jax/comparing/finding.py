"""Two notes of the same program held against each other: which operator differs first, by its result or by a gradient."""

from __future__ import annotations

import cmath
import dataclasses
from collections.abc import Iterator
from typing import Any

from torchgrad_jax.comparing.derivatives import ORDERS
from torchgrad_jax.comparing.figures import Distance, Figures, as_rounded, distance, tolerance
from torchgrad_jax.comparing.noting import HOOK, INPUT, PASSES, Arrival, Notes, Place, Record

# How far the notes are searched for where they come together again, and how many calls are computed anew on the same operands.
AHEAD, MOST_PROBES = 300, 200
# What no operator explains is named if it is so many times what rounding gives, and so much further off than what it was made of: sums that cancel
# lose digits too.
_GROSS, _WORSE = 300, 100


@dataclasses.dataclass
class Suspect:
    """A record whose results differ though its operands do not, or by more than they do. ours, theirs: its number on either side. what: which result,
    or which gradient. worse: how much more its results differ than its operands. at: how many calls there were before. otherwise: in
    what else the two calls differ."""

    ours: int
    theirs: int
    what: str
    distance: Distance
    worse: float
    at: float
    otherwise: str = ""


@dataclasses.dataclass
class Difference:
    """An operator that differs. certain: whether it also does on the same operands. what: its value, gradient or second derivative; which: of which
    result or operand. file: where the call was kept."""

    operator: str
    where: str
    text: str
    what: str
    distance: Distance
    certain: bool
    note: str = ""
    file: str = ""

    def __str__(self) -> str:
        lines = [f"{self.operator} at {self.where}", f"    {self.text}"] if self.where else [self.operator]
        lines.append(f"  {self.what}: {self.distance}")
        if self.note:
            lines.append(f"  {self.note}")
        if self.file:
            lines.append(f"  replay: torchgrad-jax diff --replay {self.file}")
        return "\n".join(lines)


class Aligned:
    """Two notes with the records that belong together. ours_only, theirs_only: records of one side alone."""

    def __init__(self, ours: Notes, theirs: Notes) -> None:
        self.ours, self.theirs = ours, theirs
        self.pairs: dict[int, int] = {}
        self.ours_only: list[int] = []
        self.theirs_only: list[int] = []
        self._align()

    def _align(self) -> None:
        a, b = [_key(r) for r in self.ours.records], [_key(r) for r in self.theirs.records]
        i = j = 0
        while i < len(a) and j < len(b):
            if a[i] != b[j]:
                skip_i, skip_j = _meeting(a, b, i, j)
                self.ours_only += range(i, i + skip_i)
                self.theirs_only += range(j, j + skip_j)
                i, j = i + skip_i, j + skip_j
                if i >= len(a) or j >= len(b):
                    break
            self.pairs[i] = j
            i, j = i + 1, j + 1
        self.ours_only += range(i, len(a))
        self.theirs_only += range(j, len(b))

    def arrivals(self) -> Iterator[tuple[Arrival, Arrival]]:
        """The gradients that belong together, in the order in which they arrived on our side."""
        theirs = {(a.place, a.nth): a for a in self.theirs.arrivals}
        for a in self.ours.arrivals:
            record, result = a.place
            found = theirs.get(((self.pairs.get(record, -1), result), a.nth))
            if found is not None:
                yield a, found

    def way_parts(self) -> tuple[Record | None, Record | None] | None:
        """The first records at which the program went another way on one side: their lines differ; None where it did not."""
        ours, theirs = ({_line(notes.records[i]) for i in range(len(notes.records))} for notes in (self.ours, self.theirs))
        mine = next((self.ours.records[i] for i in self.ours_only if _line(self.ours.records[i]) not in theirs), None)
        other = next((self.theirs.records[i] for i in self.theirs_only if _line(self.theirs.records[i]) not in ours), None)
        return None if mine is None and other is None else (mine, other)


def _line(record: Record) -> str:
    return record.where


def _key(record: Record) -> tuple[str, str, str]:
    return (record.name, record.path if record.name == INPUT else "", record.where)


def _meeting(a: list[Any], b: list[Any], i: int, j: int) -> tuple[int, int]:
    """How many records of each side are passed over until they come together again."""
    for total in range(1, 2 * AHEAD):
        for skip in range(max(0, total - AHEAD), min(total, AHEAD) + 1):
            x, y = i + skip, j + total - skip
            if x >= len(a) and y >= len(b):
                return len(a) - i, len(b) - j
            if x < len(a) and y < len(b) and a[x] == b[y]:
                return skip, total - skip
    return len(a) - i, len(b) - j


class Search:
    """Which operators of two aligned notes differ."""

    def __init__(self, aligned: Aligned) -> None:
        self.aligned = aligned
        self.ours, self.theirs = aligned.ours.records, aligned.theirs.records
        self._distances: dict[Place, Distance] = {}
        self.compared = 0
        self._so_far = 0.0  # how far apart results have been up to the present one
        self.largest: dict[str, tuple[float, Record]] = {}

    def suspects(self) -> list[Suspect]:
        """What is to be looked at more closely: of each operator on each line what differs first, in the order in which it does."""
        found: dict[tuple[str, str, str], Suspect] = {}
        for suspect in sorted([*self._by_values(), *self._by_gradients(), *self._hooks_alone()], key=lambda s: s.at):
            record = self.ours[suspect.ours]
            found.setdefault((record.name, record.where, suspect.what.partition(" ")[0]), suspect)
        return list(found.values())[:MOST_PROBES]

    def _distance(self, place: Place) -> Distance | None:
        """Of our result at `place` from the other's; None where there is none."""
        if place not in self._distances:
            number, i = place
            other = self.aligned.pairs.get(number)
            if other is None:
                return None
            mine, its = self.ours[number].results, self.theirs[other].results
            if i >= len(mine) or i >= len(its):
                return Distance(f"{len(mine)} results instead of {len(its)}")
            self._distances[place] = distance(mine[i], its[i])
        return self._distances[place]

    def _by_values(self) -> Iterator[Suspect]:
        for i, j in self.aligned.pairs.items():
            record = self.ours[i]
            if record.name == HOOK:
                yield from self._by_hook(i, j)
                continue
            for k in range(max(len(record.results), len(self.theirs[j].results))):
                apart = self._distance((i, k))
                assert apart is not None
                self._count(apart, record)
                if not apart.is_rounding(self._tolerance(record, apart.dtype)):
                    # Gradients arrive while a pass runs, so what it gives comes after them.
                    at = i + 0.75 if record.name in PASSES else i
                    yield Suspect(i, j, f"result {k}", apart, self._worse(record, apart), at, self._otherwise(record, self.theirs[j]))
                    self._so_far = max(self._so_far, apart.relative)
                    break
                self._so_far = max(self._so_far, apart.relative)

    def _tolerance(self, record: Record, dtype: str) -> float:
        """How far results of a call may be apart by rounding: a number of Python's as far as the tensor that it was read from."""
        if dtype not in ("float", "complex"):
            return tolerance(dtype)
        read = [self.ours[number].results[i].dtype for number, i in record.inputs]
        return max(map(tolerance, [dtype, *read]))

    def _otherwise(self, record: Record, other: Record) -> str:
        """In what else the two calls differ: an operand that another call gave, or Python's numbers."""
        for number, _ in record.inputs:
            if number not in self.aligned.pairs:
                return f"{self._told((number, 0))} was called here alone"
        if not _same_numbers(record.numbers, other.numbers):
            return f"it was called with other numbers: {record.numbers} instead of {other.numbers}"
        return ""

    def _by_hook(self, i: int, j: int) -> Iterator[Suspect]:
        given, made = (distance(self.ours[i].results[k], self.theirs[j].results[k]) for k in (0, 1))
        if not made.is_rounding(tolerance(made.dtype)):
            yield Suspect(i, j, "gradient that the hook makes", made, _ratio(made, given), i)

    def _hooks_alone(self) -> Iterator[Suspect]:
        """Hooks that one side alone called."""
        for i in self.aligned.ours_only:
            if self.ours[i].name == HOOK:
                given, made = self.ours[i].results
                yield Suspect(i, -1, "gradient that the hook makes of its own", distance(made, given), float("inf"), i, "it was called here alone")

    def _count(self, apart: Distance, record: Record) -> None:
        self.compared += 1
        if not apart.what and apart.relative > self.largest.get(apart.dtype, (0.0, record))[0]:
            self.largest[apart.dtype] = (apart.relative, record)

    def _worse(self, record: Record, apart: Distance) -> float:
        """How much further apart its results are than its operands: infinite where those are equal."""
        if not record.inputs:  # what it is made of was not seen: as far as anything before it
            return apart.relative / self._so_far if self._so_far and not apart.what else float("inf")
        operands = [self._distance(place) for place in record.inputs]
        if any(d is not None and d.what for d in operands):
            return 0.0 if not apart.what else 1.0
        before = max((d.relative for d in operands if d is not None), default=0.0)
        if apart.what:
            return float("inf") if before <= 1e-3 else 1.0
        return apart.relative / before if before else float("inf")

    def _by_gradients(self) -> Iterator[Suspect]:
        users: dict[Place, list[int]] = {}
        for i in self.aligned.pairs:
            for place in self.ours[i].inputs:
                if i not in users.setdefault(place, []):
                    users[place].append(i)
        before: dict[tuple[int, int], Distance] = {}  # by record and round: how far apart the gradients of its results are
        first = None  # the place of the first gradient that differs, which none before it explains
        for mine, its in self.aligned.arrivals():
            apart = distance(mine.figures, its.figures)
            record, result = mine.place
            self._count(apart, self.ours[record])
            key = (record, mine.nth)
            if key not in before or before[key].relative < apart.relative or apart.what:
                before[key] = apart
            if apart.is_rounding(tolerance(apart.dtype)):
                continue
            first = mine.place if first is None else first
            for user in users.get(mine.place, ()):
                arrived = before.get((user, mine.nth)) or before.get((user, 0))
                worse = float("inf") if arrived is None and first == mine.place else _ratio(apart, arrived)
                what = f"gradient of what {self._told(mine.place)} gave"
                yield Suspect(user, self.aligned.pairs[user], what, apart, worse, mine.behind - 0.5)

    def _told(self, place: Place) -> str:
        record = self.ours[place[0]]
        return f"{record.name} at {record.where}"


def _same_numbers(ours: list[Any], theirs: list[Any]) -> bool:
    """Whether Python's numbers are the same but for rounding."""
    return len(ours) == len(theirs) and all(
        a == b or cmath.isclose(a, b, rel_tol=1e-4) or (a != a and b != b) for a, b in zip(ours, theirs, strict=True)
    )


def _ratio(apart: Distance, before: Distance | None) -> float:
    if before is None:
        return 1.0
    if before.what:
        return 0.0
    if apart.what or not before.relative:
        return float("inf")
    return apart.relative / before.relative


# ---------------------------------------------------------------------- what a closer look gives


def confirmed(verdict: Any) -> tuple[str, Distance] | None:
    """What of a call differs on the same operands; None where nothing does. verdict: see `Record`."""
    mine, its, exact = verdict
    for order in ORDERS:
        if order not in its:
            continue
        if order not in mine:
            return order, Distance(f"raises an error here, and not there, where it is asked for its {order}")
        for n, (a, b) in enumerate(zip(mine[order], its[order], strict=False)):
            apart = _apart(a, b, order)
            if apart is not None and not _excused(a, b, exact.get(order, ()), n, apart):
                return f"{order} {n}" if order == "value" else f"{order} of operand {n}", apart
        if len(mine[order]) != len(its[order]):
            return order, Distance(f"{len(mine[order])} of them instead of {len(its[order])}")
    return None


def _apart(a: Any, b: Any, order: str) -> Distance | None:
    """How far apart two measured results are; None where that is rounding. A gradient that is none is one of zeros."""
    if a is None or b is None:
        other = a if b is None else b
        if other is None or not other[1].any():
            return None
        return Distance(f"{'none' if a is None else 'one'} here and {'none' if b is None else 'one'} there")
    apart = distance(_as_figures(a), _as_figures(b))
    far = tolerance(apart.dtype) * (1 if order == "value" else 10)
    return None if apart.is_rounding(far) else apart


def _excused(a: Any, b: Any, exact: Any, n: int, apart: Distance) -> bool:
    return not apart.what and n < len(exact) and exact[n] is not None and as_rounded(a[1], b[1], exact[n][1])


def _as_figures(measured: tuple[str, Any]) -> Figures:
    return Figures(measured[0], tuple(measured[1].shape), measured[1].reshape(-1))


def first_difference(aligned: Aligned, suspects: list[Suspect], probed: dict[int, Any], files: dict[int, str]) -> Difference | None:
    """The first operator that differs, of the suspects in their order.

    probed: by our record's number what `Record.verdict` was after a closer look. It is certain where a call differs on the same operands too. Where
    none does, it is the first whose result is far off though its operands are not, which no operator explains; None where all has grown from
    rounding.
    """
    records = aligned.ours.records
    for suspect in suspects:
        verdict = probed.get(suspect.ours)
        found = confirmed(verdict) if isinstance(verdict, tuple) else None
        if found is not None:
            return _difference(records[suspect.ours], found[0], found[1], True, "", files.get(suspect.ours, ""))
    for suspect in suspects:
        record = records[suspect.ours]
        agrees = isinstance(probed.get(suspect.ours), tuple)
        far = tolerance(suspect.distance.dtype, chain=True) * (1 if suspect.otherwise else _GROSS)
        if suspect.worse >= _WORSE and not suspect.distance.is_rounding(min(far, 0.1)):
            if agrees and not suspect.otherwise and not suspect.what.startswith("gradient"):
                continue  # it is its operands that differ, by more than is seen of them
            note = suspect.otherwise or _note(record, agrees, probed.get(suspect.ours))
            return _difference(record, suspect.what, suspect.distance, False, note, "")
    return None


def _note(record: Record, agrees: bool, verdict: Any) -> str:
    if record.name == HOOK:
        return "the hook was given the same gradient on both sides"
    if record.name == INPUT:
        return "made by no operator that was noted: by a transform, a Function or code outside of the library"
    if agrees:
        return "the operator gives the same on the same operands: a hook, a Function or a write in place is between"
    if record.name in PASSES:
        return "what a derivative gives, though the gradients on the way agree as far as they were noted"
    return f"the call could not be computed anew on the same operands ({verdict})" if verdict else ""


def _difference(record: Record, what: str, apart: Distance, certain: bool, note: str, file: str) -> Difference:
    name = {HOOK: f"hook {record.path}", INPUT: f"operand {record.path}"}.get(record.name, record.path or record.name)
    return Difference(name, record.where, record.text, what, apart, certain, note, file)
