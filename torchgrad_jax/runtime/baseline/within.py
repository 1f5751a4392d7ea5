"""Carrying out a plan in a context. Compiled (`within.pxd`), it is entered without asking Python."""

from __future__ import annotations

from contextvars import Context
from typing import Any

from torchgrad_jax.runtime.baseline.carrying import carry_out


def carried_out(context: Context, calls: list[tuple[Any, ...]], values: list[Any]) -> None:
    """`carry_out` in a context that nobody is in. RuntimeError where somebody is."""
    context.run(carry_out, calls, values)
