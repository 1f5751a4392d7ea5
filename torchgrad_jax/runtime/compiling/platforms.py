"""What a function is on a CPU, and elsewhere, where one way is the quicker one there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jax import lax

_on_cpu: ContextVar[bool] = ContextVar("on_cpu", default=False)


@contextmanager
def traced_for_cpu() -> Iterator[None]:
    """What is traced here is for a CPU: `by_platform` need not trace, nor keep, what it would be elsewhere."""
    before = _on_cpu.set(True)
    try:
        yield
    finally:
        _on_cpu.reset(before)


def by_platform(*operands: Any, cpu: Callable[..., Any], default: Callable[..., Any]) -> Any:
    """What one of two functions, which are the same but for the time that they take, gives of the operands."""
    return cpu(*operands) if _on_cpu.get() else lax.platform_dependent(*operands, cpu=cpu, default=default)
