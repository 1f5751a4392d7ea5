"""Loops over what is drawn; compiled, they are C's."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.operators.kernels import box_muller


def units(draws: Any, out: Any) -> None:
    """See `box_muller.units`."""
    box_muller.units(draws, out)


def wide_units(draws: Any, out: Any) -> None:
    """See `box_muller.wide_units`."""
    box_muller.wide_units(draws, out)


def normals(uniform: Any, out: Any) -> None:
    """See `box_muller.normals`."""
    box_muller.normals(uniform, out)
