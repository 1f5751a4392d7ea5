"""What is known of the whole process without having watched it: totals, and the programs that are kept."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torchgrad_jax.explain.data import Data, Flush
from torchgrad_jax.explain.findings import findings
from torchgrad_jax.explain.jitted import JittedRecord, described
from torchgrad_jax.explain.programs import known_programs, pending, tier
from torchgrad_jax.explain.text import text
from torchgrad_jax.lifting.jitting import living
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.tiers import INTERPRETED, by_xla, reason

# So many programs are listed, those that were run last.
MOST = 1_000


class Report:
    """What `torchgrad_jax.explain.report` has found. `str()` is the text, `as_dict()` and `data` are the data."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def as_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, strings and numbers."""
        return self.data.as_dict()

    def __str__(self) -> str:
        return text(self.data)


def report() -> Report:
    """See `torchgrad_jax.explain.report`."""
    flushes = [Flush(reason, "", "", "", "", "", times, 0) for reason, times in Counter(counters.reasons).most_common()]
    programs = []
    for number, met in enumerate(known_programs(MOST), 1):
        met.number, met.tier, met.because = number, tier(met.program), reason(met.program)
        met.by_xla = by_xla(met.program) if met.tier == INTERPRETED else {}
        met.runs = Counter({met.tier: met.program.seen})
        programs.append(met.data())
    jitted = [described(function, JittedRecord(), {}) for function in list(living) if function.recompilations]
    for one in jitted:
        one.events = [{"event": event, "line": "", "times": 1} for event in one.record]
    recorded = {"of all kinds": counters.recorded} if counters.recorded else {}
    data = Data(None, recorded, pending(), [], flushes, programs, 0, [], jitted, {}, {}, counters.failed)
    data.findings = findings(data)
    return Report(data)
