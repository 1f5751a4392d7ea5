"""How long XLA compiles, as JAX tells, for the profiles that are on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import monitoring

# Those who are told: the name of what was done, and its nanoseconds.
heard: list[Callable[[str, int], None]] = []
_COMPILED = "/jax/core/compile/backend_compile_duration"


def _hear(event: str, duration: float, **_: Any) -> None:
    if event == _COMPILED:
        for told in list(heard):
            told("xla::compile", int(duration * 1e9))


# Once: JAX has no public way to take a listener back. It is called at compilations alone.
monitoring.register_event_duration_secs_listener(_hear)  # type: ignore[arg-type] - it is called with whatever there is
