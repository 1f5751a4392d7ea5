"""Loops over what is drawn; compiled, they are C's."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.operators.kernels import box_muller, choosing, rejecting, twister


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


def draw_normals(source: Any, out: Any) -> None:
    """See `rejecting.draw_normals`."""
    rejecting.draw_normals(source, out)


def scale(values: Any, by: float, more: float) -> None:
    """See `box_muller.scale`."""
    box_muller.scale(values, by, more)


def condition(weights: Any) -> int:
    """See `choosing.condition`."""
    return choosing.condition(weights)


def choose(weights: Any, exponential: Any, places: Any) -> None:
    """See `choosing.choose`."""
    choosing.choose(weights, exponential, places)


def stream(source: Any, out: Any) -> None:
    """See `rejecting.stream`."""
    rejecting.stream(source, out)


def gammas(source: Any, concentration: Any, d: Any, c: Any, exponent: Any, out: Any) -> None:
    """See `rejecting.gammas`."""
    rejecting.gammas(source, concentration, d, c, exponent, out)


def poissons(source: Any, rate: Any, out: Any) -> None:
    """See `rejecting.poissons`."""
    rejecting.poissons(source, rate, out)


def binomials(source: Any, count: Any, probability: Any, out: Any) -> None:
    """See `rejecting.binomials`."""
    rejecting.binomials(source, count, probability, out)


def invert(source: Any, rows: Any, places: Any, sums: Any) -> int:
    """See `rejecting.invert`."""
    return rejecting.invert(source, rows, places, sums)
