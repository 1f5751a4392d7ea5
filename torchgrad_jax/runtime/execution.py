"""Switching between the execution modes: `fused` records and runs whole programs, `eager` runs each operation at once."""

from __future__ import annotations

from types import TracebackType

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.recorder import recorder


class execution_mode:
    """Context manager (or plain call) that sets how operations run: ``"fused"`` (default) or ``"eager"``.

    It holds for all threads. What is pending when the mode changes is run first. ValueError for another name.
    """

    def __init__(self, mode: str) -> None:
        if mode not in modes.MODES:
            raise ValueError(f"execution mode must be one of {modes.MODES}, not {mode!r}")
        self.previous = modes.execution
        _set(mode)

    def __enter__(self) -> execution_mode:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _set(self.previous)


def _set(mode: str) -> None:
    rec = recorder()
    rec.flush("mode")
    modes.execution = mode
    rec.begin()
