"""What a step gives when it is interpreted, and when it is compiled."""

from __future__ import annotations

import torchgrad_jax as torch
from torchgrad_jax.runtime import baseline_tier


def in_both_tiers(step):
    """What a step returns that is met for the first time, and what it does once it is compiled."""
    with torch.explain() as report, baseline_tier(True):
        first = step()
    assert "interpreted" in report.programs[0].runs
    with torch.explain() as report, baseline_tier(False):
        for _ in range(3):
            last = step()
    assert "compiled" in report.programs[-1].runs
    return first, last
