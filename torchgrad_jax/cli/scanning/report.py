"""What a scan found, as text and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torchgrad_jax.cli.scanning import differences
from torchgrad_jax.cli.scanning.files import Place, Skipped
from torchgrad_jax.cli.scanning.uses import Use

HAVE, DIFFERS, MISSING, OPTIONAL = "have", "differs", "missing", "optional"
_SHOWN_PLACES = 3


@dataclass
class Name:
    """One of torch's names. verdict: `have`, `differs` (is here, see `differences`), `missing`, or `optional`: missing, and not needed."""

    name: str
    verdict: str
    places: list[Place]
    optional: int
    differences: list[differences.Difference] = field(default_factory=list)


@dataclass
class Report:
    """What a scan found. files: those that were read. dynamic: where names are asked for that only a run tells."""

    path: str
    files: list[str]
    names: list[Name]
    skipped: list[Skipped]
    dynamic: list[Place]

    def of(self, *verdicts: str) -> list[Name]:
        """The names with one of these verdicts."""
        return [name for name in self.names if name.verdict in verdicts]

    @property
    def share(self) -> float:
        """The percentage of the names that are here, of those that are needed; 100 where none is needed."""
        needed = self.of(HAVE, DIFFERS, MISSING)
        return 100.0 * len(self.of(HAVE, DIFFERS)) / len(needed) if needed else 100.0

    @property
    def files_that_run(self) -> int:
        """How many files need nothing that is missing."""
        return len(self.files) - len({place.file for name in self.of(MISSING) for place in name.places})

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "path": self.path,
            "summary": {
                "files": len(self.files),
                "files_without_missing": self.files_that_run,
                "names": len(self.names),
                **{verdict: len(self.of(verdict)) for verdict in (HAVE, DIFFERS, MISSING, OPTIONAL)},
                "uses": sum(len(name.places) for name in self.names),
                "percent": round(self.share, 2),
            },
            "names": [
                {
                    "name": name.name,
                    "verdict": name.verdict,
                    "count": len(name.places),
                    "optional_uses": name.optional,
                    "places": [place._asdict() for place in name.places],
                    "differences": [d._asdict() for d in name.differences],
                }
                for name in self.names
            ],
            "skipped": [s._asdict() for s in self.skipped],
            "dynamic": [place._asdict() for place in self.dynamic],
        }

    def text(self, everything: bool = False) -> str:
        """For a terminal. everything: all places, not the first few."""
        lines = []
        for title, verdict in (
            ("here", HAVE),
            ("here, with differences (docs/differences.md)", DIFFERS),
            ("missing, but optional: the code asks first, or does without", OPTIONAL),
            ("missing", MISSING),
        ):
            names = self.of(verdict)
            if names:
                lines += [f"{title}: {len(names)}", *(line for name in names for line in _shown(name, everything)), ""]
        if self.dynamic:
            lines += [f"asked for by a name that only a run tells: {_places(self.dynamic, everything)}", ""]
        if self.skipped:
            lines += [f"not read: {len(self.skipped)}", *(f"  {s.file}: {s.reason}" for s in self.skipped), ""]
        return "\n".join([*lines, self.summary()])

    def summary(self) -> str:
        """The last line."""
        needed = len(self.of(HAVE, DIFFERS, MISSING))
        if not needed:
            return f"No name of torch's is needed in {_count(len(self.files), 'file')}."
        return (
            f"{self.share:.1f} % of {_count(needed, 'torch name')} would run ({len(self.of(MISSING))} missing); "
            f"files that need nothing that is missing: {self.files_that_run} of {len(self.files)}."
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _shown(name: Name, everything: bool) -> list[str]:
    lines = [f"  {name.name:<44} {len(name.places):>5}  {_places(name.places, everything)}"]
    return lines + [f"      {d.about}: {d.here}" for d in name.differences]


def _places(places: Sequence[Place], everything: bool) -> str:
    shown = places if everything else places[:_SHOWN_PLACES]
    return ", ".join(map(str, shown)) + ("" if len(shown) == len(places) else ", ...")


def gathered(path: str, files: list[str], uses: list[Use], skipped: list[Skipped], dynamic: list[Place]) -> Report:
    """The report of all uses of a code base."""
    by_name: dict[str, list[Use]] = {}
    for use in uses:
        by_name.setdefault(use.name, []).append(use)
    rows = differences.by_name()
    names = []
    for name, found in sorted(by_name.items()):
        optional = sum(use.optional for use in found)
        differ = rows.get(name, [])
        if found[0].found:
            verdict = DIFFERS if differ else HAVE
        else:
            verdict, differ = OPTIONAL if optional == len(found) else MISSING, []
        names.append(Name(name, verdict, [use.place for use in found], optional, differ))
    return Report(path, files, names, skipped, dynamic)
