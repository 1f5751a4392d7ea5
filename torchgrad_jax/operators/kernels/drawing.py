"""Loops over what is drawn; compiled, they are C's."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.operators.kernels import box_muller, choosing, twister


def knows(source: Any, key: Any, at: int) -> bool:
    """See `twister.knows`."""
    return twister.knows(source, key, at)


def draw(source: Any, kind: int, out: Any, span: int, base: int) -> None:
    """See `twister.draw`."""
    twister.draw(source, kind, out, span, base)


def shuffle(source: Any, order: Any) -> None:
    """See `twister.shuffle`."""
    twister.shuffle(source, order)


def normals(uniform: Any, out: Any) -> None:
    """See `box_muller.normals`."""
    box_muller.normals(uniform, out)


def pairs(uniform: Any, out: Any) -> None:
    """See `box_muller.pairs`."""
    box_muller.pairs(uniform, out)


def scale(values: Any, by: float, more: float) -> None:
    """See `box_muller.scale`."""
    box_muller.scale(values, by, more)


def condition(weights: Any) -> int:
    """See `choosing.condition`."""
    return choosing.condition(weights)


def choose(weights: Any, exponential: Any, places: Any) -> None:
    """See `choosing.choose`."""
    choosing.choose(weights, exponential, places)
