"""What a terminal is told of waiting: a compilation that takes long, and a loop that compiles or interprets something new at every turn.

Lines on standard error, where that is a terminal; `TORCHGRAD_JAX_NOTICES=off` silences them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchgrad_jax.runtime.observing.differences import Outline, difference

# Seconds until a compilation is worth a line.
LONG = 2.0
# So many new programs of so many operations, one after the other, that begin alike are a loop whose structure changes.
IN_A_ROW, OPERATIONS = 50, 20


def _told() -> bool:
    return os.environ.get("TORCHGRAD_JAX_NOTICES", "on") != "off" and _is_terminal()


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def compiling(operations: int) -> Iterator[None]:
    """Say on a terminal that this many operations are being compiled, if that takes long."""
    if not _told():
        yield
        return
    timer = threading.Timer(LONG, lambda: print(f"torchgrad_jax: compiling {operations:,} operations ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Changing:
    """Watches the programs of one thread for a loop whose structure changes at every turn, and says once what differs."""

    __slots__ = ("_last", "_said")

    def __init__(self) -> None:
        self._last: Any = None
        self._said = False

    def met(self, calls: list[Any], row: int) -> int:
        """A program was met for the first time, after `row` others in a row that began alike. How many those are now."""
        last, self._last = self._last, calls
        if self._said or len(calls) < OPERATIONS:
            return row
        alike = last is not None and len(last) >= OPERATIONS and last[0].signature.bop is calls[0].signature.bop
        row = row + 1 if alike else 0
        if row >= IN_A_ROW and last is not None:
            self._said = True
            if _told():
                print(f"torchgrad_jax: the last {IN_A_ROW} turns of a loop were each a new program: {changed(last, calls)}. "
                      "Sizes and structure that repeat are compiled once.", file=sys.stderr, flush=True)  # fmt: skip
        return row


def changed(old: list[Any], new: list[Any]) -> str:
    """Where two programs first differ, in words."""
    found = difference(Outline(old), Outline(new))
    return "other results are held" if found is None else found.text
