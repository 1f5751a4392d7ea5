"""The execution modes: `fused` records and runs whole programs, `eager` runs each operation at once."""

from __future__ import annotations

import os
from types import TracebackType

_MODES = ("fused", "eager")

execution: str = os.environ.get("TORCHGRAD_JAX_EXECUTION", "fused")
if execution not in _MODES:
    raise ValueError(f"TORCHGRAD_JAX_EXECUTION must be one of {_MODES}, not {execution!r}")


class execution_mode:
    """Context manager (or plain call) that sets how operations run: ``"fused"`` (default) or ``"eager"``.

    It holds for all threads. What is pending when the mode changes is run first. ValueError for another name.
    """

    def __init__(self, mode: str) -> None:
        if mode not in _MODES:
            raise ValueError(f"execution mode must be one of {_MODES}, not {mode!r}")
        self.previous = execution
        _set(mode)

    def __enter__(self) -> execution_mode:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _set(self.previous)


def _set(mode: str) -> None:
    from torchgrad_jax.runtime.recorder import recorder

    global execution
    rec = recorder()
    rec.flush("mode")
    execution = mode
    rec.clear()
