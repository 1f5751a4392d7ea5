"""The program of a trace as a JAX function whose derivatives, taken by JAX, are those of the graph that was recorded with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from warnings import catch_warnings, filterwarnings

import jax
import numpy as np
from jax import numpy as jnp
from jax.custom_derivatives import SymbolicZero

from torchgrad_jax.core.dispatch import NO_PLAN, plan_of
from torchgrad_jax.declaration.derivative import Plan
from torchgrad_jax.declaration.forward import jvp_of
from torchgrad_jax.runtime._jax_compat import has_x64
from torchgrad_jax.runtime.compiling.for_xla import traced_for_xla
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.structure import operands

NATURAL: Any = object()


class Derivatives(NamedTuple):
    """The derivatives of the operations of a program, by the slots of their first results.

    plans: the Plans of their nodes, None where they have none; an operation that is not there is part of another, and has JAX's derivative.
    refused: the operands, as a mask, that an operation refuses to be differentiated by.
    """

    plans: dict[int, Plan | None]
    refused: dict[int, int]

    def inputs(self, slot: int) -> tuple[int, ...]:
        """The operands that a derivative can be asked for of, be it refused then."""
        plan, refused = self.plans.get(slot), self.refused.get(slot, 0)
        found = () if plan is None else plan.inputs
        return tuple(sorted({*found, *[i for i in range(refused.bit_length()) if refused >> i & 1]}))

    def refused_by(self, calls: Sequence[Any]) -> list[tuple[Signature, int, set[int]]]:
        """The operations of a program that refuse to be differentiated by some of their operands, the mask of these, and the program's inputs that
        they are computed from."""
        sources: dict[int, set[int]] = {}
        found = []
        for call in calls:
            followed = self.inputs(call.slot) if call.slot in self.plans else range(len(call.args))
            reached = {i: {a} if a < 0 else sources[a] for i, a in enumerate(call.args) if type(a) is int and i in followed}
            if mask := self.refused.get(call.slot, 0):
                found.append((call.signature, mask, set().union(*[s for i, s in reached.items() if mask >> i & 1])))
            for slot in range(call.slot, call.end):
                sources[slot] = set().union(*reached.values())
        return found


def carried_out(calls: Sequence[Any], derivatives: Derivatives, numbers: dict[str, Any], env: dict[int, Any]) -> None:
    """Call each operation, in order, on the arrays in `env`, and put its results there."""
    for call in calls:
        given = operands(env, numbers, call)
        plan = derivatives.plans.get(call.slot, NATURAL)
        if plan is NATURAL:
            outs = _values(call.signature, given)
        elif inputs := derivatives.inputs(call.slot):
            outs = _differentiable(call.signature, plan, inputs, given)
        else:
            outs = jax.lax.stop_gradient(_values(call.signature, given))
        for i, slot in enumerate(range(call.slot, call.end)):
            env[slot] = outs[i]


def _values(sig: Signature, given: Sequence[Any]) -> tuple[Any, ...]:
    outs = sig.traced(*given) if has_x64() else sig.in_32_bits(given)
    return tuple(outs)[: len(sig.avals)]


def _differentiable(sig: Signature, plan: Plan | None, inputs: tuple[int, ...], given: Sequence[Any]) -> Sequence[Any]:
    """The results of an operation, with the derivative that it is declared with, with respect to these operands. plan: for all of them that it does
    not refuse."""
    places = [i for i, spec in enumerate(sig.specs) if not isinstance(spec, type)]

    numbers = [g if isinstance(spec, type) else None for g, spec in zip(given, sig.specs, strict=True)]

    def filled(arrays: Sequence[Any]) -> list[Any]:
        full = list(numbers)  # they stay Python's
        for i, array in zip(places, arrays, strict=True):
            full[i] = array
        return full

    @jax.custom_jvp
    def operation(*arrays: Any) -> Any:
        return _values(sig, filled(arrays))

    def push(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        outs, full = operation(*primals), filled(primals)
        moved = {i: t for i, t in zip(places, tangents, strict=True) if i in inputs and not isinstance(t, SymbolicZero)}
        asked = _plan_for(sig, plan, tuple(moved)) if moved else None
        if asked is None:
            return outs, tuple([_tangent(o, None) for o in outs])
        saved = [full[i] if i >= 0 else outs[-1 - i] for i in asked.saves]
        specs = [sig.specs[i] if i >= 0 else sig.avals[-1 - i] for i in asked.saves] + [sig.specs[i] for i in asked.inputs]
        forward: Any = jvp_of(sig, asked)
        with catch_warnings():
            filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            push_forward = traced_for_xla(_as_tuple(forward.specialize(specs)))
            carried = iter(_in_words_of_backward(push_forward, *saved, *[moved[i] for i in asked.inputs]))
        return outs, tuple([_tangent(o, next(carried) if there else None) for o, there in zip(outs, asked.outputs, strict=True)])

    operation.defjvp(push, symbolic_zeros=True)
    # What has no gradient in the graph has none of any order.
    return operation(*[given[i] if i in inputs else jax.lax.stop_gradient(given[i]) for i in places])


def _plan_for(sig: Signature, plan: Plan | None, inputs: tuple[int, ...]) -> Plan | None:
    """The Plan for some operands of those that one was made for. RuntimeError where one of them has no derivative."""
    if plan is not None and plan.inputs == inputs:
        return plan
    found = plan_of(sig, sum(1 << i for i in inputs))
    return None if found is NO_PLAN else found


def _in_words_of_backward(push_forward: Any, *arrays: Any) -> Any:
    """What JAX differentiates in either direction is refused as backward refuses it."""
    try:
        return push_forward(*arrays)
    except NotImplementedError as error:
        raise error.__context__ or error from None


def _as_tuple(function: Any) -> Any:
    def call(*arrays: Any) -> tuple[Any, ...]:
        found = function(*arrays)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    return call


def _tangent(out: Any, tangent: Any) -> Any:
    dtype = jax.dtypes.result_type(out)
    if not jnp.issubdtype(dtype, jnp.inexact):
        return np.zeros(jnp.shape(out), jax.dtypes.float0)
    return jnp.zeros(jnp.shape(out), dtype) if tangent is None else tangent.astype(dtype)
