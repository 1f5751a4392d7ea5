"""What the runtime did and why: tests and users read it, nothing depends on it."""

from __future__ import annotations

from collections import Counter


class Counters:
    """Totals since the last `reset`, over all threads.

    recorded: operations appended to programs; flushed: programs run, by reason in `reasons`; compiled: whole programs
    compiled, `compiled_ops`: single operations compiled; ran: compiled programs run; interpreted: programs run by the baseline tier;
    stepped: programs run operation by operation by XLA; failed: programs that did not come to their end, but for interrupts and failed checks.
    """

    __slots__ = ("recorded", "flushed", "compiled", "compiled_ops", "ran", "interpreted", "stepped", "failed", "reasons")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set every total to zero."""
        self.recorded = self.flushed = self.compiled = self.compiled_ops = self.ran = self.interpreted = self.stepped = self.failed = 0
        self.reasons: Counter[str] = Counter()

    def snapshot(self) -> dict[str, int]:
        """The totals as a dict, without the reasons."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "reasons"}

    def __repr__(self) -> str:
        return f"Counters({self.snapshot()}, reasons={dict(self.reasons)})"


counters = Counters()
