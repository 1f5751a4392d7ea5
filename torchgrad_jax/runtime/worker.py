"""Long programs that nobody waits for run in a thread of ours, while the caller records what comes next.

Our CPU client runs a program in the thread that calls it, which is the quickest way for one whose result is looked at. A program that takes longer
than handing it over, and that was cut by the turn of a loop and not by a look, is handed over: XLA lets go of Python's lock while it computes.
"""

from __future__ import annotations

import os
import threading
import weakref
from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import Any

from torchgrad_jax.runtime.observing.observer import WAITING, timed

# From this estimated time on, in nanoseconds, a program is worth the 50 us that handing it over takes.
LONG = 400_000.0
# How many programs may be on their way: recording must not run ahead of computing for ever.
MOST_UNDER_WAY = 2

_under_way: deque[Future[Any]] = deque()
_lock = threading.Lock()


class Promised:
    """One of the arrays that a program under way will make: the result of `epoch` in the slot `slot`."""

    __slots__ = ("epoch", "slot", "_job", "_array", "__weakref__")

    def __init__(self, epoch: Any, slot: int) -> None:
        self.epoch, self.slot = epoch, slot
        self._job: Future[None] | None = None  # None until it is handed over, which may not have come to pass
        self._array: Any = None

    def kept(self) -> Any:
        """The array, when it is there. Raises what became of it if the program failed."""
        if self._array is None:
            job = self._job
            with timed(WAITING):
                failed = job is None or job.cancelled() or job.exception() is not None
            if failed:
                self._array = self.epoch.outcome(self.slot)
        return self._array


def hand_over(function: Callable[..., Any], arguments: list[Any], promises: list[Promised], done: Callable[[], None]) -> None:
    """Call `function` in the other thread, where `arguments` may still be promised. Empties them. Its results keep the `promises`; `done` is called
    when they are there. Returns once it has begun."""
    # Whoever keeps one output, such as a loss, must not keep the others.
    cells = [weakref.ref(p) for p in promises]
    begun = threading.Event()
    job: Future[None] = Future()
    for p in promises:
        p._job = job

    def run() -> None:
        if not job.set_running_or_notify_cancel():
            return
        begun.set()
        try:
            given = [a.kept() if type(a) is Promised else a for a in arguments]
            arguments.clear()
            for cell, array in zip(cells, function(*given), strict=False):
                promise = cell()
                if promise is not None:
                    promise._array = array
            done()
        except BaseException as error:
            job.set_exception(error)
        else:
            job.set_result(None)

    try:
        with _lock:
            while _under_way and (len(_under_way) >= MOST_UNDER_WAY or _under_way[0].done()):
                wait([_under_way.popleft()])
            _thread().submit(run)
            _under_way.append(job)
            alone = len(_under_way) == 1
        # Python gives a thread its lock only every 5 ms unless this one waits: the program would begin when the caller looks.
        if alone:
            begun.wait()
    except BaseException:
        job.cancel()  # if it has not begun: whoever interrupts this need not know
        raise


def undisturbed(function: Callable[..., Any], *arguments: Any) -> None:
    """Call `function` in a thread of its own, where no signal comes, and return when it has. Ctrl-C is raised here, but not before it is done,
    however often it comes.

    What is set for this thread alone by a context of JAX's, such as `jax.default_matmul_precision`, is not set in that one.
    """
    turn, done = [None], allocate_lock()
    outcome: list[BaseException | None] = []  # there before the lock is free
    done.acquire()

    def run() -> None:
        if not _taken(turn):
            return
        try:
            function(*arguments)
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)
        finally:
            done.release()

    try:
        start_new_thread(run, ())
        done.acquire()
    except BaseException:
        begun = not _taken(turn)  # else it never will
        while begun and not outcome:
            with suppress(BaseException):
                done.acquire()
        raise
    if outcome[0] is not None:
        raise outcome[0]


def _taken(turn: list[None]) -> bool:
    """Whether this thread is the first to ask."""
    try:
        turn.pop()
    except IndexError:
        return False
    return True


def wait_for_all() -> None:
    """Return when no program is under way."""
    wait(list(_under_way))


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "torchgrad_jax-run")


def _in_forked_child() -> None:
    """The thread has stayed in the parent: what was under way is computed here when it is looked at, what comes is handed to another."""
    global _lock
    _lock = threading.Lock()
    _thread.cache_clear()
    for job in _under_way:
        if not job.done():
            job.set_exception(RuntimeError("the process was forked while a program was under way"))
    _under_way.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
