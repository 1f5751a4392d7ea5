"""The program of a trace as a JAX function whose derivatives, taken by JAX, are those of the graph that was recorded with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from warnings import catch_warnings, filterwarnings

import jax
import numpy as np
from jax import numpy as jnp

from torchgrad_jax.declaration.derivative import Plan
from torchgrad_jax.declaration.forward import jvp_of
from torchgrad_jax.runtime._jax_compat import has_x64
from torchgrad_jax.runtime.compiling.masks import selecting_masks
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.structure import operands

NATURAL: Any = object()


def carried_out(calls: Sequence[Any], plans: dict[int, Any], numbers: dict[str, Any], env: dict[int, Any]) -> None:
    """Call each operation, in order, on the arrays in `env`, and put its results there.

    plans: by the slot of an operation's first result, the Plan of its node, or None where it has none; an operation that is not there is part of
    another, and has JAX's derivative.
    """
    for call in calls:
        given = operands(env, numbers, call)
        outs = _called(call.signature, plans.get(call.slot, NATURAL), given)
        for i, slot in enumerate(range(call.slot, call.end)):
            env[slot] = outs[i]


def _called(sig: Signature, plan: Any, given: list[Any]) -> Sequence[Any]:
    if plan is NATURAL:
        return _values(sig, given)
    if plan is None:
        return jax.lax.stop_gradient(tuple(_values(sig, given)))
    return _differentiable(sig, plan, given)


def _values(sig: Signature, given: Sequence[Any]) -> tuple[Any, ...]:
    outs = sig.traced(*given) if has_x64() else sig.in_32_bits(given)
    return tuple(outs)[: len(sig.avals)]


def _differentiable(sig: Signature, plan: Plan, given: Sequence[Any]) -> Sequence[Any]:
    """The results of an operation, with the derivative that it is declared with, with respect to the inputs of the Plan."""
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
        moved = dict(zip(places, tangents, strict=True))
        saved = [full[i] if i >= 0 else outs[-1 - i] for i in plan.saves]
        specs = [sig.specs[i] if i >= 0 else sig.avals[-1 - i] for i in plan.saves] + [sig.specs[i] for i in plan.inputs]
        forward: Any = jvp_of(sig, plan)
        with catch_warnings():
            filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            push_forward = selecting_masks(_as_tuple(forward.specialize(specs)))
            carried = iter(push_forward(*saved, *[moved[i] for i in plan.inputs]))
        return outs, tuple([_tangent(o, next(carried) if there else None) for o, there in zip(outs, plan.outputs, strict=True)])

    operation.defjvp(push)
    # What has no gradient in the graph has none of any order.
    return operation(*[given[i] if i in plan.inputs else jax.lax.stop_gradient(given[i]) for i in places])


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
