"""`torch.fx._compatibility`: the mark of what stays as it is from one version to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["compatibility"]

_Marked = TypeVar("_Marked", bound=Callable[..., Any])


def compatibility(is_backward_compatible: bool) -> Callable[[_Marked], _Marked]:
    """A decorator that gives back what it decorates: nothing is checked."""
    return lambda marked: marked
