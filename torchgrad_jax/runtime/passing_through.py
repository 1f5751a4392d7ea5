"""What `torch.compiler` and `torch.jit` are where every program is compiled by XLA anyway: they give back what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def decorator(fn: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator, with arguments or without, that gives back the function."""
    return (lambda function: function) if fn is None else fn


def no() -> bool:
    """False."""
    return False
