"""What every benchmark hands back: Markdown, and the list of what was found wrong."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Sequence
from typing import NamedTuple

IDLE_LOAD = 0.7


class Report(NamedTuple):
    """Markdown text, and one sentence for each wrong result, error or broken promise."""

    text: str
    problems: list[str]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def written(line: Sequence[str]) -> str:
        return "| " + " | ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))) + " |"

    return "\n".join([written(lines[0]), "| " + " | ".join(rule) + " |", *map(written, lines[1:])])


def duration(seconds: float) -> str:
    """Seconds with a unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 100 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def mebibytes(count: float) -> str:
    """Bytes as MiB."""
    return f"{count / 2**20:.1f} MiB"


def surroundings(device: str) -> str:
    """One line: versions, machine, load."""
    versions = []
    for name in ("torchgrad_jax", "jax", "torch", "numpy"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} from a checkout" if name == "torchgrad_jax" else f"no {name}")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}, device {device}"
    return f"{', '.join(versions)}, Python {platform.python_version()}; {machine}."


def warn_if_busy() -> None:
    """PyTorch's OpenMP threads spin a thousandfold slower when another process takes a core."""
    load = os.getloadavg()[0]
    if load > IDLE_LOAD:
        print(f"warning: load average {load:.1f}: the machine is not idle, and times and ratios will mislead", file=sys.stderr)
