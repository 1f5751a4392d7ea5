"""A program noted under both libraries, and what differs looked at more closely: its calls computed anew by both on the same operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchgrad_jax.comparing.finding import Aligned, Difference, Search, Suspect, first_difference
from torchgrad_jax.comparing.noting import Notes, Probe, Record

# Runs the program under one library, noting it.
Side = Callable[[Probe | None], Notes]


@dataclasses.dataclass
class Investigation:
    """What the search for the first operator that differs has found.

    difference: the first operator that differs, None where all that differs is rounding. compared: how many results and gradients were. alone: how
    many calls were met on our side alone, and on the other. parted: the lines where the program went another way. largest: by dtype the largest
    relative difference and where it was. cut: whether there were more calls than are noted. failed: how the program failed, under which library.
    """

    difference: Difference | None
    compared: int
    alone: tuple[int, int]
    parted: tuple[str, str] | None
    largest: dict[str, tuple[float, str]]
    cut: bool
    failed: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """All of it as dicts, lists, strings and numbers."""
        found = dataclasses.asdict(self)
        if self.difference is not None:
            found["difference"]["distance"]["ulp"] = _finite(self.difference.distance.ulp)
        return found

    def __str__(self) -> str:
        lines = []
        if self.difference is not None:
            lines.append(f"The first that differs is {self.difference}")
        else:
            lines.append("No difference beyond rounding" + (" up to where the program failed." if self.failed else "."))
        lines += self.failed
        lines.append(f"{self.compared} results and gradients were compared.")
        lines += [f"  {dtype}: at most {apart:.2g} of the largest element, at {where}" for dtype, (apart, where) in sorted(self.largest.items())]
        if self.parted is not None:
            here, there = (line or "nothing of the kind" for line in self.parted)
            lines.append(f"The program went another way: here to {here}, there to {there}.")
        if self.cut:
            lines.append("There were more calls than are noted: what came later was not compared.")
        return "\n".join(lines)


def _finite(x: float) -> float | None:
    return x if x == x and abs(x) != float("inf") else None


def investigate(ours: Side, theirs: Side, folder: Path) -> Investigation:
    """Run the program under both libraries, once or, where something differs, twice. folder: for what is kept between."""
    aligned = Aligned(ours(None), theirs(None))
    search = Search(aligned)
    suspects = search.suspects()
    probed, files = _probed(suspects, ours, theirs, folder, aligned) if suspects else ({}, {})
    parted = aligned.way_parts()
    return Investigation(
        first_difference(aligned, suspects, probed, files),
        search.compared,
        (len(aligned.ours_only), len(aligned.theirs_only)),
        None if parted is None else (_line(parted[0]), _line(parted[1])),
        {dtype: (apart, _line(record)) for dtype, (apart, record) in search.largest.items()},
        aligned.ours.cut or aligned.theirs.cut,
    )


def _line(record: Record | None) -> str:
    return "" if record is None else f"{record.path or record.name} at {record.where}"


def _probed(suspects: list[Suspect], ours: Side, theirs: Side, folder: Path, aligned: Aligned) -> tuple[dict[int, Any], dict[int, str]]:
    """What came of computing the suspects' calls anew, and the files in which they are, by our numbers."""
    suspects = [s for s in suspects if s.theirs >= 0]
    kept = theirs(Probe(folder, {s.theirs: s.theirs for s in suspects}, checks=False))
    checked = ours(Probe(folder, {s.ours: s.theirs for s in suspects}, checks=True))
    probed, files = {}, {}
    for s in suspects:
        again = [notes.records[n] if n < len(notes.records) else None for notes, n in ((checked, s.ours), (kept, s.theirs))]
        if any(record is None or record.name != aligned.ours.records[s.ours].name for record in again):
            probed[s.ours] = "the program made other calls when it was run again"
            continue
        mine, its = again
        assert mine is not None and its is not None
        probed[s.ours] = its.verdict if mine.verdict is None else mine.verdict
        file = folder / f"call{s.theirs}.npz"
        if file.exists():
            files[s.ours] = str(file)
    return probed, files
