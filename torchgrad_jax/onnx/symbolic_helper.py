"""`torch.onnx.symbolic_helper`: how packages mark what exports their operators. Nothing is exported, so nothing calls that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["parse_args"]

_F = TypeVar("_F", bound=Callable[..., Any])


def parse_args(*arg_descriptors: str) -> Callable[[_F], _F]:
    """Decorator that gives back the function."""
    return lambda fn: fn
