"""Writes into a part of an array, as XLA must see them.

XLA's CPU compiler makes one loop of a write and of what computes that which is written, and lets it write into the array itself. Where it reads
other places of that array it must not, and knows that, but not where dimensions of one element come or go before or behind the write:
`y[1:] = y[:-1]` and a `y[None]` behind it fill y with its first element. Whether the one array is made of the other cannot be seen in an operation
by itself. So what is written is kept in memory of its own first, by a condition that XLA does not know and moves nothing past.

That costs 2 us, and the write its place in the loop before it: 48 writes through views of a matrix take 100 us without, 320 with it. A program that
gives no array of as many elements other dimensions needs none of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from jax import lax
from jax import numpy as jnp
from jax.extend.core import Literal

from torchgrad_jax.runtime.baseline import is_elementwise, jaxprs_in

# Which operand is what is written into the first one.
_WRITTEN = {"dynamic_update_slice": 1, "scatter": 2, "scatter-add": 2, "scatter-sub": 2, "scatter-mul": 2, "scatter-min": 2, "scatter-max": 2}
# Equations whose operands XLA gives no other dimensions than the equation says. (A product's matrices become a batch of one.)
_AS_SAID = frozenset((
    "argmax", "argmin", "broadcast_in_dim", "concatenate", "copy", "custom_jvp_call", "dynamic_slice", "dynamic_update_slice", "expand_dims",
    "iota", "jit", "pad", "pjit", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "reshape", "slice", "squeeze",
    "transpose",
))  # fmt: skip


class Sizes(NamedTuple):
    """How many elements arrays have in a jaxpr. written: those that XLA may write into too early; reshaped: those that it gives other dimensions."""

    written: frozenset[int]
    reshaped: frozenset[int]


def reshaped_by(calls: Iterable[Any]) -> frozenset[int]:
    """How many elements the arrays have that the operations of a program give other dimensions."""
    return frozenset().union(*[call.signature.sizes.reshaped for call in calls])


def kept_apart(calls: Iterable[Any], reshaped: frozenset[int]) -> set[int]:
    """The operations, by their slots, that have to keep what they write in memory of its own (see `Signature.in_programs`) in a program in which
    arrays of so many elements are reshaped."""
    return {call.slot for call in calls if not reshaped.isdisjoint(call.signature.sizes.written)}


def sizes_in(jaxpr: Any) -> Sizes:
    """Of a jaxpr, within loops and branches too."""
    apart = in_memory_of_their_own(jaxpr)
    written, reshaped = set(), set()
    for eqn in jaxpr.eqns:
        if may_overtake(eqn, apart):
            written.add(eqn.invars[0].aval.size)
        reshaped |= _reshaped_by(eqn)
        for inner in map(sizes_in, jaxprs_in(eqn)):
            written |= inner.written
            reshaped |= inner.reshaped
    return Sizes(frozenset(written), frozenset(reshaped))


def _reshaped_by(eqn: Any) -> set[int]:
    given, made = _avals(eqn.invars), _avals(eqn.outvars)
    changed = {a.size for a in given + made if 1 in a.shape}  # XLA drops such dimensions by itself
    if eqn.primitive.name in _AS_SAID or is_elementwise(eqn.primitive.name):
        return changed.union([a.size for a in given if any([a.size == b.size and a.shape != b.shape for b in made])])
    within = [a for jaxpr in jaxprs_in(eqn) for a in _avals([*jaxpr.invars, *jaxpr.outvars])]
    return changed.union([a.size for a in given + made + within])


def _avals(variables: list[Any]) -> list[Any]:
    return [v.aval for v in variables if v.aval.size > 1]


def in_memory_of_their_own(jaxpr: Any) -> set[Any]:
    """The variables that are one known number everywhere, and those that a condition gives: XLA reads them from nowhere else."""
    return {v for eqn in jaxpr.eqns if eqn.primitive.name == "cond" or _is_constant(eqn) for v in eqn.outvars}


def _is_constant(eqn: Any) -> bool:
    return eqn.primitive.name == "broadcast_in_dim" and isinstance(eqn.invars[0], Literal)


def may_overtake(eqn: Any, apart: set[Any]) -> bool:
    """Whether XLA may write several elements in the loop that computes them. apart: see `in_memory_of_their_own`."""
    at = _WRITTEN.get(eqn.primitive.name)
    if at is None or (at == 2 and math.prod(eqn.invars[1].aval.shape[:-1]) != 1):  # several indices are written one after the other
        return False
    array, written = eqn.invars[0], eqn.invars[at]
    return written.aval.size > 1 and apart.isdisjoint([v for v in (array, written) if not isinstance(v, Literal)])


def written_apart(eqn: Any) -> Callable[..., Any]:
    """A function of the equation's operands that does the same."""
    return partial(_written_apart, eqn.primitive, dict(eqn.params))


def _written_apart(primitive: Any, params: dict[str, Any], *operands: Any) -> Any:
    at = _WRITTEN[primitive.name]
    apart = lax.platform_dependent(operands[0], operands[at], cpu=_kept, default=lambda array, written: written)
    return primitive.bind(*operands[:at], apart, *operands[at + 1 :], **params)


def _kept(array: Any, written: Any) -> Any:
    unknown = _first(array) == _first(written)
    return lax.cond(unknown, lambda a: a, lambda a: a * jnp.ones((), a.dtype), written)  # of two alike XLA makes one


def _first(array: Any) -> Any:
    return lax.reshape(lax.slice(array, (0,) * array.ndim, (1,) * array.ndim), ())
