"""What the runtime did and why: tests and users read it, nothing depends on it."""

from __future__ import annotations


class Counters:
    """Totals since the last `reset`, over all threads.

    recorded: operations appended to programs; flushed: programs run, by reason in `reasons`; compiled: whole programs
    compiled, `compiled_ops`: single operations compiled; ran: compiled programs run; interpreted: programs run by the baseline tier;
    stepped: programs run operation by operation by XLA; settled: programs for which nothing had to be decided any more (`settled.py`); failed:
    programs that did not come to their end, but for interrupts and failed checks.
    """

    _TOTALS = ("recorded", "flushed", "compiled", "compiled_ops", "ran", "interpreted", "stepped", "settled", "failed")
    __slots__ = (*_TOTALS, "reasons", "_compiled_before")

    def __init__(self) -> None:
        self.compiled = self.compiled_ops = self._compiled_before = 0
        self.reset()

    @property
    def ever_compiled(self) -> bool:
        """Whether anything was compiled since the process began."""
        return self._compiled_before + self.compiled + self.compiled_ops > 0

    def reset(self) -> None:
        """Set every total to zero."""
        self._compiled_before += self.compiled + self.compiled_ops
        self.recorded = self.flushed = self.compiled = self.compiled_ops = self.ran = self.interpreted = self.stepped = self.settled = self.failed = 0
        self.reasons: dict[str, int] = {}

    def snapshot(self) -> dict[str, int]:
        """The totals as a dict, without the reasons."""
        return {name: getattr(self, name) for name in self._TOTALS}

    def __repr__(self) -> str:
        return f"Counters({self.snapshot()}, reasons={dict(self.reasons)})"


counters = Counters()
