"""How much memory this process has, now and at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def resident() -> int:
    """Bytes resident now; where the system does not tell, the most so far."""
    return _of_status("VmRSS") or _maximum()


def peak_resident() -> int:
    """The most bytes that were resident at one time.

    Linux counts into `ru_maxrss` what the parent had when it started this process; `VmHWM` is the same figure without it.
    """
    return _of_status("VmHWM") or _maximum()


def _of_status(field: str) -> int:
    try:
        text = _STATUS.read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _maximum() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def live_arrays() -> int | None:
    """How many arrays JAX holds in this process, for the user and for us; None where JAX was not imported."""
    jax, ours = sys.modules.get("jax"), sys.modules.get("torchgrad_jax.runtime.device")
    if jax is None:
        return None
    return len(jax.live_arrays()) if ours is None else ours.live_arrays()
