"""Timing a statement."""

from __future__ import annotations

import ast
import enum
import itertools
import sys
import textwrap
import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.runtime import accelerators
from torchgrad_jax.runtime.device import gpus
from torchgrad_jax.runtime.recorder import recorder
from torchgrad_jax.utils.benchmark.measurement import Measurement, TaskSpec

__all__ = ["Language", "Timer", "timer"]


def timer() -> float:
    """The time in seconds, once all that has been recorded is computed."""
    if gpus():
        accelerators.wait()
    else:
        recorder().flush("synchronize")
    return time.perf_counter()


def _compute() -> None:
    recorder().flush("synchronize")


def _computing(stmt: str) -> str:
    """A statement that computes what it records in each turn, also what nobody keeps: a program that ends there would leave that out."""
    try:
        tree = ast.parse(stmt)
    except SyntaxError:
        return stmt  # timeit says so
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        tree.body[-1] = ast.Assign([ast.Name("_kept_by_the_timer", ast.Store())], last.value)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n_compute_in_the_timer()"


class Language(enum.Enum):
    """What a statement is written in."""

    PYTHON = 0
    CPP = 1


def _as_language(language: Language | str) -> Language:
    if isinstance(language, Language):
        return language
    found = {"py": Language.PYTHON, "python": Language.PYTHON, "cpp": Language.CPP, "c++": Language.CPP}.get(language)
    if found is None:
        raise ValueError(f"Invalid language `{language}`.")
    return found


class Timer:
    """Times a statement as `timeit` does, with labels for tables. What the statement records is computed in each turn, as if it were looked at.

    stmt, setup: Python's source. globals: the names it sees, beside `torch`. label, sub_label, description, env: what `Compare` puts rows and columns
    together by. num_threads: a label, since XLA's threads are made when it starts. NotImplementedError for C++.
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None, label: str | None = None, sub_label: str | None = None, description: str | None = None,
        env: str | None = None, num_threads: int = 1, language: Language | str = Language.PYTHON,
    ) -> None:  # fmt: skip
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if _as_language(language) is Language.CPP:
            raise NotImplementedError("torch.utils.benchmark.Timer: statements in C++ need PyTorch's headers, which are not there; use Python's")
        if global_setup:
            raise ValueError("global_setup is C++ only, most likely you wanted `setup`.")
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)
        self._clock_of = timer
        names = {"torch": sys.modules["torchgrad_jax"], **(globals or {}), "_compute_in_the_timer": _compute}
        self._timer = timeit.Timer(_computing(stmt), setup, timer, names)

    def _timeit(self, number: int) -> float:
        # A clock that does not advance gives 0, which cannot be divided by.
        return max(self._timer.timeit(number), 1e-9)

    def _measured(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._task_spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One run of `number` turns, after a few to warm up."""
        self._timeit(max(int(number // 100), 2))
        return self._measured(number, [self._timeit(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """NotImplementedError: see `blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> None:
        """NotImplementedError: see `blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, min_run_time: float) -> int:
        """How many turns take so long that reading the clock does not count."""
        overhead = float(np.median([self._clock() for _ in range(5)]))
        number = 1
        while True:
            taken = self._timeit(number)
            if (overhead / taken <= 1e-4 and taken >= min_run_time / 1000) or taken > min_run_time or number >= 1e8:
                return number
            number *= 10

    def _clock(self) -> float:
        return max(timeit.Timer("pass", timer=self._clock_of).timeit(0), 0.0)

    def blocked_autorange(self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2) -> Measurement:
        """As many runs as take `min_run_time` seconds together."""
        number = self._block_size(min_run_time)
        times: list[float] = []
        while not times or sum(times) < min_run_time:
            times.append(self._timeit(number))
            if callback is not None:
                callback(number, times[-1])
        return self._measured(number, times)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, callback: Callable[[int, float], Any] | None = None
    ) -> Measurement:
        """Runs until their interquartile range is below `threshold` of the median, or `max_run_time` seconds have gone."""
        number = self._block_size(0.05)
        times: list[float] = []
        for _ in itertools.count():
            times.append(self._timeit(number))
            if callback is not None:
                callback(number, times[-1])
            if sum(times) > max_run_time or (
                len(times) > 3 and sum(times) > min_run_time and self._measured(number, times).meets_confidence(threshold)
            ):
                break
        return self._measured(number, times)

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> Any:
        """NotImplementedError: instructions of PyTorch's own code are counted there."""
        raise NotImplementedError(
            "torch.utils.benchmark.Timer.collect_callgrind: there is nothing of PyTorch's to count; run valgrind on the program"
        )
