"""The loop over time of an LSTM by functions of C's, in compiled modules (`recurring.pxd`): for XLA, and for the interpreter. Here there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def recur(given: Sequence[Any], made: Sequence[Any], how: Any) -> bool:
    """Write into `made`, five arrays, what the loop makes of four given ones; or into three what its gradient does. All contiguous, of float32. How:
    four int64. See `recurring.pxd` for which they are. Returns whether there is such a function."""
    return False
