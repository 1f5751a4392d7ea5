"""What was timed, and how long it took."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Measurement", "TaskSpec", "ordered_unique", "select_unit", "trim_sigfig", "unit_to_english"]

_UNITS = {"ns": ("nanosecond", 1e-9), "us": ("microsecond", 1e-6), "ms": ("millisecond", 1e-3), "s": ("second", 1)}
# A measurement whose interquartile range is more of the median is not to be relied on, or to be read with care.
_IQR_WARNS, _IQR_WARNS_LOUDLY = 0.1, 0.25
# Clocks are not exacter than this, in seconds; and the quantile of the normal distribution for 90 % on both sides.
_CLOCK, _QUANTILE = 25e-9, 1.645


def select_unit(t: float) -> tuple[str, float]:
    """The unit to show `t` seconds in, with its length in seconds."""
    unit = {-1: "ns", 0: "us", 1: "ms", 2: "s"}.get(int(math.log10(t * 1e6) // 3) if t > 0 else -1, "s" if t > 1 else "ns")
    return unit, _UNITS[unit][1]


def unit_to_english(u: str) -> str:
    """The name of a unit."""
    return _UNITS[u][0]


def trim_sigfig(x: float, n: int) -> float:
    """`x` rounded to n digits."""
    if x == 0:
        return x
    scale = 10 ** (int(math.floor(math.log10(abs(x)) + 1)) - n)
    return float(round(x / scale) * scale)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """The elements, each once, in the order of their first appearance."""
    return list(dict.fromkeys(elements))


@dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """What was timed, and its labels."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The labels, or the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        """The setup as `Measurement` shows it."""
        if self.setup == "pass" or not self.setup:
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and setup as lines of text."""
        parts = [self.title, self.description or "", self.setup_str()]
        return "\n".join([f"{part}\n" if "\n" in part else part for part in parts if part])


@dataclass(init=True, repr=False)
class Measurement:
    """The times, in seconds, of several runs of a statement, each of `number_per_run` turns."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    @property
    def times(self) -> list[float]:
        """Seconds of one turn, for each run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        """The median of `times`."""
        return float(np.median(self.times))

    @property
    def mean(self) -> float:
        """The mean of `times`."""
        return float(np.mean(self.times))

    @property
    def iqr(self) -> float:
        """The interquartile range of `times`."""
        low, high = np.quantile(self.times, [0.25, 0.75])
        return float(high - low)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median are to be relied on, by the confidence interval of the runs between the quartiles."""
        times = sorted(self.times)
        between = times[len(times) // 4 : math.ceil(3 * len(times) / 4)]
        interval = max(_QUANTILE * float(np.std(between)) / math.sqrt(len(between)), _CLOCK)
        return max(min(math.floor(-math.log10(interval / self.median)), 4), 1)

    @property
    def has_warnings(self) -> bool:
        """Whether the runs differ much."""
        return self.iqr / self.median > _IQR_WARNS

    def meets_confidence(self, threshold: float = _IQR_WARNS) -> bool:
        """Whether the interquartile range is below this part of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        """The labels, or the statement."""
        return self.task_spec.title

    @property
    def env(self) -> str | None:
        """What it was timed in, as it was said."""
        return self.task_spec.env

    @property
    def as_row_name(self) -> str:
        """What a row of a table is called by."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "task_spec":
            raise AttributeError(name)
        return getattr(self.task_spec, name)

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        lines = [object.__repr__(self), self.task_spec.summarize()]
        if len(self.times) == 1:
            lines.append(f"  {self.median / scale:.2f} {unit}")
        else:
            lines.append(f"  Median: {self.median / scale:.2f} {unit}")
            if len(self.times) >= 4:
                low, high = (float(q) / scale for q in np.quantile(self.times, [0.25, 0.75]))
                lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
        runs, threads = len(self.times), self.task_spec.num_threads
        each = f"{self.number_per_run} runs {'per measurement' if runs > 1 else ''}"
        lines.append(f"  {runs} measurement{'s'[: runs > 1]}, {each}, {threads} thread{'s'[: threads > 1]}")
        if runs >= 4 and self.has_warnings:
            could = (
                "This suggests significant environmental influence."
                if self.iqr / self.median > _IQR_WARNS_LOUDLY
                else "This could indicate system fluctuation."
            )
            lines += [f"  WARNING: Interquartile range is {self.iqr / self.median:.1%} of the median measurement.", f"           {could}"]
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One Measurement for each thing that was timed, of all its runs."""
        grouped: defaultdict[TaskSpec, list[Measurement]] = defaultdict(list)
        for m in measurements:
            grouped[m.task_spec].append(m)
        return [Measurement(1, [t for m in group for t in m.times], spec, None) for spec, group in grouped.items()]


def spread(measurements: Iterable[Any]) -> Iterator[Measurement]:
    """The measurements of nested lists."""
    for m in measurements:
        if isinstance(m, Measurement):
            yield m
        elif isinstance(m, Iterable):
            yield from spread(m)
        else:
            raise ValueError(f"Expected an instance of `Measurement`, got type {type(m)} instead.")
