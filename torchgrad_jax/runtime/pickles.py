"""Names in pickles: what rebuilds things is found in `torchgrad_jax._utils`, wherever it is written. Files outlive the structure of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T", bound=Callable[..., object])
PLACE = "torchgrad_jax._utils"
# By the name that pickles know.
rebuilding: dict[str, Callable[..., object]] = {}


def in_pickles(name: str) -> Callable[[_T], _T]:
    """Let pickles know a function or class by this name, for ever."""

    def give(found: _T) -> _T:
        assert name not in rebuilding, name
        found.__module__, found.__name__, found.__qualname__ = PLACE, name, name
        rebuilding[name] = found
        return found

    return give
