"""Primitives that only call a jaxpr: their equations take its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# The parameter that holds the jaxpr.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


def called(eqn: Any) -> tuple[Any, list[Any]] | None:
    """The jaxpr that an equation does nothing but call, and its constants; None for other equations."""
    name = _CALLS.get(eqn.primitive.name)
    return None if name is None else opened(eqn.params[name])


def opened(jaxpr: Any) -> tuple[Any, list[Any]]:
    """A jaxpr, closed or not, as an open one and its constants."""
    return (jaxpr.jaxpr, list(jaxpr.consts)) if hasattr(jaxpr, "consts") else (jaxpr, [])


def jaxprs_in(eqn: Any) -> Iterator[Any]:
    """The (open) jaxprs among an equation's parameters."""
    for value in eqn.params.values():
        for one in value if isinstance(value, (tuple, list)) else (value,):
            one = getattr(one, "jaxpr", one)
            if hasattr(one, "eqns"):
                yield one


def count(jaxpr: Any) -> int:
    """How many primitives there are, those within loops and branches included."""
    return sum([(called(eqn) is None) + sum([count(inner) for inner in jaxprs_in(eqn)]) for eqn in jaxpr.eqns])
