"""How long JAX traces, lowers and compiles, as it tells itself, for the profiles that are on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import monitoring

# Those who are told: the name of what was done, and its nanoseconds.
heard: list[Callable[[str, int], None]] = []
_KINDS = {
    "/jax/core/compile/jaxpr_trace_duration": "xla::trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "xla::lower",
    "/jax/core/compile/backend_compile_duration": "xla::compile",
}


def _hear(event: str, duration: float, **_: Any) -> None:
    name = _KINDS.get(event)
    if name is not None:
        for told in list(heard):
            told(name, int(duration * 1e9))


# Once: JAX has no public way to take a listener back. It is called at compilations alone.
monitoring.register_event_duration_secs_listener(_hear)
