"""What memory was made and freed while a profile was on."""

from __future__ import annotations

import time
import weakref
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Any

import jax
import numpy as np

now = time.perf_counter_ns


class Memory:
    """Which arrays were made and freed, and when. Each is counted once, however many tensors have it."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, int, int]] = []  # nanoseconds, bytes, and the array's id
        self._alive: dict[int, Any] = {}
        self._sums: tuple[list[int], list[int]] | None = None

    def made(self, array: Any, at: int) -> None:
        """An array was made, unless it is known."""
        if self.know(array):
            self.changes.append((at, array.nbytes, id(array)))

    def part(self, array: Any) -> None:
        """An array is part of the memory of another, unless it is known: neither that it was made counts, nor that it is freed."""
        self.know(array, counts=False)

    def know(self, array: Any, counts: bool = True) -> bool:
        """Note when an array is freed. Whether that is new."""
        if not isinstance(array, (jax.Array, np.ndarray)) or id(array) in self._alive or not array.nbytes:
            return False
        key, nbytes = id(array), array.nbytes

        def freed(_: Any) -> None:
            if self._alive.pop(key, None) is not None and counts:
                self.changes.append((now(), -nbytes, key))

        self._alive[key] = weakref.ref(array, freed)
        return True

    def stop(self) -> None:
        """Follow no array any further."""
        self._alive.clear()
        self.changes.sort()

    def within(self, start: int, end: int) -> int:
        """Bytes made less bytes freed from `start` to `end`."""
        if self._sums is None or len(self._sums[0]) != len(self.changes):
            self._sums = [at for at, _, _ in self.changes], list(accumulate([b for _, b, _ in self.changes], initial=0))
        times, sums = self._sums
        return sums[bisect_right(times, end)] - sums[bisect_left(times, start)]
