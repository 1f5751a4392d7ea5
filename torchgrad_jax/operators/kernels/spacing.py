"""Evenly spaced numbers, rounded where PyTorch rounds: grids are made of them, and a point on a pixel must lie on the same side of it."""

from __future__ import annotations

from typing import Any

import numpy as np

# Product and sum are rounded once, as by a fused multiplication and addition. Others than these round each operation.
_FUSED: dict[str, Any] = {"f": np.float64, "d": np.longdouble}


def evenly_spaced(start: Any, end: Any, steps: int, target: np.dtype) -> np.ndarray:
    """`steps` numbers (2 at least) from `start` to `end` in the dtype `target`, counted from both ends inwards."""
    if target.char in _FUSED:
        kind: Any = target.type
        within = _FUSED[target.char]
    else:
        kind = within = target.type if target.itemsize == 2 and target.kind not in "iu" else np.complex128 if target.kind == "c" else np.float64
    found, half = np.empty(steps, target), steps // 2
    with np.errstate(all="ignore"):
        first, last = kind(start), kind(end)
        step = within((last - first) / kind(steps - 1))
        # An assignment rounds to the target.
        found[:half] = within(first) + step * np.arange(half).astype(within)
        found[half:] = within(last) - step * np.arange(steps - half - 1, -1, -1).astype(within)
    return found
