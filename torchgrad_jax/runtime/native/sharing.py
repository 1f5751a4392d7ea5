"""The threads that share large work of C's: see `sharing.pxd`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def heed_forks() -> None:
    """Let processes that are forked from this one `work_alone`: they are several, and have none of its threads."""


def work_alone() -> None:
    """Let this process do without helpers from now on: it is one of several that share the processors."""


def share(piece: Callable[[Any, int, Any], None], work: Any, pieces: int, light: bool) -> None:
    """Call `piece` of the work and each number below `pieces`, in any order: in C by several threads, each with what it has kept. light: it takes
    some microseconds, for which nobody is woken."""
    for number in range(pieces):
        piece(work, number, None)
