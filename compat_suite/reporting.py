"""What is counted by operator, check and dtype, as it is told."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BATCH = 12  # operators a process


def tiers() -> dict[str, int]:
    """The tier of each operator of tiers 1 and 2."""
    return {name: int(tier) for tier, name in (line.split() for line in (HERE / "tiers.txt").read_text().splitlines())}


def report(found: dict[str, Any], names: list[str], tier_of: dict[str, int]) -> None:
    """Print how much agrees."""
    for tier in sorted({tier_of.get(n, 3) for n in names}):
        whole: dict[str, list[int]] = {}
        for key, (agree, samples, _) in found.items():
            name, check, _ = key.split(" ")
            if tier_of.get(name, 3) == tier:
                row = whole.setdefault(check, [0, 0])
                row[0] += agree
                row[1] += samples
        for check, row in whole.items():
            rows = [c for k, c in found.items() if k.split(" ")[1] == check and tier_of.get(k.split(" ")[0], 3) == tier]
            print(
                f"tier {tier} {check}: {row[0]} of {row[1]} samples agree ({100 * row[0] / max(row[1], 1):.2f} %), "
                f"{sum(a == n for a, n, _ in rows)} of {len(rows)} operators with a dtype"
            )


def report_share(what: str, rows: Iterable[Any]) -> None:
    """Print how many of the samples agree, of rows that begin with how many agree and how many there are."""
    rows = list(rows)
    agree, count = (sum(row[i] for row in rows) for i in (0, 1))
    print(f"{what}: {agree} of {count} samples agree ({100 * agree / max(count, 1):.2f} %)")


def report_differences(found: dict[str, Any]) -> None:
    """Print what differs."""
    grouped: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for key, count in found.items():
        name, check, dtype = key.split(" ")
        if count[0] < count[1]:
            grouped.setdefault((name, check), []).append((dtype, count))
    for (name, check), rows in grouped.items():
        print(f"{name} {check}: " + ", ".join(f"{dtype} {agree}/{samples}" for dtype, (agree, samples, _) in rows))
        seen: dict[str, str] = {}
        for _, (_, _, differences) in rows:
            for d in differences:
                seen.setdefault(re.sub(r"[^A-Za-z ]", "", d.partition(" <- ")[0])[:60], d)
        for d in list(seen.values())[:4]:
            print(f"    {d}", flush=True)
