"""`torch.backends.opt_einsum`: it finds the order of the products in `torch.einsum`.

`enabled`: whether it is asked; else operands are multiplied from left to right. `strategy`: how it looks: "auto", "greedy" or "optimal".
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import opt_einsum

from torchgrad_jax.functions.matrices.einsum import ordering

__all__ = ["flags", "get_opt_einsum", "is_available", "set_flags"]

_STRATEGIES = ("auto", "greedy", "optimal")


def is_available() -> bool:
    """True: JAX brings it."""
    return True


def get_opt_einsum() -> Any:
    """The package."""
    return opt_einsum


def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[bool, str | None]:
    """Set what is not None; returns what they were. ValueError for an unknown strategy, and for one where opt_einsum is not asked."""
    before = ordering.enabled, ordering.strategy
    if _enabled is not None:
        ordering.enabled = _enabled
    if _strategy is None:
        return before
    if _strategy not in _STRATEGIES:
        raise ValueError(f"`strategy` must be one of the following: [{', '.join(_STRATEGIES)}] but is {_strategy}")
    if not ordering.enabled:
        raise ValueError(
            f"opt_einsum is not enabled, so setting a `strategy` to {_strategy} will not be meaningful. torch.einsum will bypass path calculation "
            "and simply contract from left to right. Please set `enabled` to `True` as well or unset `strategy`."
        )
    ordering.strategy = _strategy
    return before


@contextmanager
def flags(enabled: bool | None = None, strategy: str | None = None) -> Iterator[None]:
    """Other settings for a block."""
    before = set_flags(enabled, strategy)
    try:
        yield
    finally:
        ordering.enabled, ordering.strategy = before


class _Settings(ModuleType):
    """The module, of which `enabled` and `strategy` may be set too."""

    enabled = property(lambda self: ordering.enabled, lambda self, value: setattr(ordering, "enabled", value))
    strategy = property(lambda self: ordering.strategy, lambda self, value: setattr(ordering, "strategy", value))


sys.modules[__name__].__class__ = _Settings
