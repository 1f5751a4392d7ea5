"""A program that differs, made as short as possible."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from compat_suite.fuzz.comparison import Difference
from compat_suite.fuzz.search import Look, Step, differs

TRIES = 400  # of smaller programs

_SMALLER = [
    (re.compile(r"^with torch\.\w+\(\): "), ""),
    (re.compile(r"; \w+ = plain\(\w+\)$"), ""),
    (re.compile(r"range\([3-9]\)"), "range(2)"),
    (re.compile(r"\.backward\(.+\)$"), ".backward()"),
    (re.compile(r"leaf\(2, 2, 2, "), "leaf(2, "),
    (re.compile(r"leaf\(2, 3, "), "leaf(2, "),
    (re.compile(r"leaf\(4, "), "leaf(2, "),
]


def smaller(steps: list[Step]) -> Iterator[list[Step]]:
    """Programs with less in them: without some statements, then with simpler ones, then looked at less."""
    size = len(steps) // 2
    while size:
        for begin in reversed(range(0, len(steps), size)):
            yield steps[:begin] + steps[begin + size :]
        size //= 2
    for i, (statement, look) in enumerate(steps):
        rows = statement.split("\n")
        simpler = ["\n".join(rows[:k] + rows[k + 1 :]) for k in range(len(rows))] if len(rows) > 1 else []
        simpler += [text for pattern, less in _SMALLER if (text := pattern.sub(less, statement)) != statement]
        for text in simpler:
            yield [*steps[:i], Step(text, look), *steps[i + 1 :]]
    for i, (statement, look) in enumerate(steps):
        if look:
            yield [*steps[:i], Step(statement, Look.NOTHING), *steps[i + 1 :]]


def shrunk(steps: list[Step], found: Difference, excluded: Iterable[str]) -> tuple[list[Step], Difference]:
    """The smallest program with a difference of the same kind that was come upon, and its difference."""
    wanted, tries = found.kind, 0
    shrinks = True
    while shrinks and tries < TRIES:
        shrinks = False
        for program in smaller(steps):
            tries += 1
            now = differs(program, excluded)
            if now is not None and now.kind == wanted:
                steps, found, shrinks = program, now, True
                break
            if tries >= TRIES:
                break
    return steps, found
