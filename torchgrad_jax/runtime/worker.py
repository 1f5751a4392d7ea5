"""Long programs that nobody waits for run in a thread of ours, while the caller records what comes next.

Our CPU client runs a program in the thread that calls it, which is the quickest way for one whose result is looked at. A program that takes longer
than handing it over, and that was cut by the turn of a loop and not by a look, is handed over: XLA lets go of Python's lock while it computes.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

# From this estimated time on, in nanoseconds, a program is worth the 50 us that handing it over takes.
LONG = 400_000.0
# How many programs may be on their way: recording must not run ahead of computing for ever.
MOST_UNDER_WAY = 2

_under_way: deque[Future[Any]] = deque()
_lock = threading.Lock()


class Promised:
    """One of the arrays that a program under way will make."""

    __slots__ = ("_job", "_array", "__weakref__")

    def __init__(self) -> None:
        self._job: Future[None]
        self._array: Any = None

    def kept(self) -> Any:
        """The array, when it is there. Raises what the program raised."""
        if self._array is None:
            self._job.result()
        return self._array

    @property
    def is_there(self) -> bool:
        """Whether `kept` returns without waiting."""
        return self._job.done()


def hand_over(function: Callable[..., Any], arguments: list[Any], outputs: int) -> list[Promised]:
    """Call `function` in the other thread, where `arguments` may still be promised. Empties them. Returns its outputs' promises once it has begun."""
    promises = [Promised() for _ in range(outputs)]
    # Whoever keeps one output, such as a loss, must not keep the others.
    cells = [weakref.ref(p) for p in promises]
    begun = threading.Event()

    def run() -> None:
        begun.set()
        given = [a.kept() if type(a) is Promised else a for a in arguments]
        arguments.clear()
        for cell, array in zip(cells, function(*given), strict=True):
            promise = cell()
            if promise is not None:
                promise._array = array

    with _lock:
        while _under_way and (len(_under_way) >= MOST_UNDER_WAY or _under_way[0].done()):
            _under_way.popleft().exception()
        job = _thread().submit(run)
        _under_way.append(job)
        alone = len(_under_way) == 1
    for p in promises:
        p._job = job
    # Python gives a thread its lock only every 5 ms unless this one waits: the program would begin when the caller looks.
    if alone:
        begun.wait()
    return promises


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "torchgrad_jax-run")
