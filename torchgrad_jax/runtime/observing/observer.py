"""What the runtime tells of its work to those who watch: `torchgrad_jax.explain` does.

Nothing is told of an operation that was recorded at its place before, which is what a loop consists of. `active` is asked where a program is run,
where something is met for the first time, and where something is compiled; while nobody watches, that is all that this costs. Who watches is told
of all threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any

# What time is spent on. COMPUTING: in the thread of ours that runs long programs, beside the user's Python; WAITING for it.
TRACING, COMPILING, RUNNING, COMPUTING, WAITING = "tracing", "compiling", "running", "computing", "waiting"


class Observer:
    """Is told what the runtime does while it is among `active`. It must not keep Values: whether anybody refers to them decides what a program is."""

    def flushing(self, recorder: Any, reason: str) -> None:
        """What is pending in `recorder` is about to be run."""

    def waiting(self) -> None:
        """Somebody looks at a result that our other thread was given to compute."""

    def program(self, step: Any, alive: bytes, program: Any, new: bool) -> None:
        """It ends at `step`, is a program whose results in these slots are held, and was not met before (`new`) or was."""

    def spent(self, phase: str, seconds: float, on: Any) -> None:
        """So long this thread was in a phase, those within it not counted. on: what was traced, compiled or run: a Program, a Signature, what `jit`
        has compiled; None for what is not told."""

    def under_jit(self, function: Any, event: str) -> None:
        """A function under `jit` was traced, or is not compiled, and why."""


# Replaced whole by `watch` and `leave`, so that whoever goes through it needs no lock.
active: tuple[Observer, ...] = ()
_lock = threading.Lock()


def watch(observer: Observer) -> None:
    """Let an observer be told from now on."""
    global active
    with _lock:
        active = (*active, observer)


def leave(observer: Observer) -> None:
    """Let it be told no more."""
    global active
    with _lock:
        active = tuple([one for one in active if one is not observer])


def looked(asked: str, look: Callable[[], Any]) -> Any:
    """What `look` returns, for a public function that leaves no frame of Python's while it is compiled: this one says what was `asked`."""
    return look()


class _Clock(threading.local):
    innermost: _Timed | None = None


_clock = _Clock()


class _Timed:
    """A phase that is under way in this thread. within: seconds spent in those that began later."""

    __slots__ = ("phase", "on", "outer", "begun", "within")

    def __init__(self, phase: str, on: Any) -> None:
        self.phase, self.on, self.within = phase, on, 0.0

    def __enter__(self) -> None:
        self.outer = _clock.innermost
        if self.on is None and self.outer is not None:
            self.on = self.outer.on
        _clock.innermost = self
        self.begun = perf_counter()

    def __exit__(self, *error: object) -> None:
        seconds = perf_counter() - self.begun
        _clock.innermost = self.outer
        if self.outer is not None:
            self.outer.within += seconds
        for one in active:
            one.spent(self.phase, seconds - self.within, self.on)


def tell_waiting() -> None:
    """See `Observer.waiting`. Programs look at such results too, while they run."""
    if active and _clock.innermost is None:
        for one in active:
            one.waiting()


_UNTIMED = nullcontext()


def timed(phase: str, on: Any = None) -> AbstractContextManager[None]:
    """A block whose time observers are told."""
    return _Timed(phase, on) if active else _UNTIMED
