"""Carrying out what `places.assigned` makes of a plan: the loop that all interpretation goes through. Compiled where there is a compiler."""

from __future__ import annotations

from typing import Any


def carry_out(calls: list[tuple[Any, ...]], values: list[Any]) -> None:
    """Make the calls of `assigned` one after the other on `values`."""
    # One, two and three operands are written out: 0.1 us a step instead of 0.25.
    for function, arity, a, b, c, operands, out in calls:
        if arity == 2:
            values[out] = function(values[a], values[b])
        elif arity == 1:
            values[out] = function(values[a])
        elif arity == 3:
            values[out] = function(values[a], values[b], values[c])
        else:
            values[out] = function(*[values[i] for i in operands])
