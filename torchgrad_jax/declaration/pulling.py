"""Reverse mode over a jaxpr by JAX's own rules: what `jax.vjp` does of a function, in a third of the time where the function has been traced already.

An equation's derivative is what its primitive's rule of `jax.jvp` says: all of them are traced into one jaxpr that is linear in the tangents. This
is then gone through from its end by the rules of `jax.linear_transpose`, and what flows to one variable from several places is added. The rules,
their order and so the results are those of `jax.vjp`; what is left out is its machinery for functions that are not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal
from jax.interpreters import ad

from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import BoundOperator
from torchgrad_jax.declaration.vjp import conj_of, single_of
from torchgrad_jax.runtime._jax_compat import has_x64, trace
from torchgrad_jax.runtime.compiling.primitives import is_loop
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import ArgSpec, Signature, common_device
from torchgrad_jax.runtime.recording.step import NUMBER_DTYPES
from torchgrad_jax.runtime.value import Aval


def gradients(sig: Signature, inputs: Sequence[int], primals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any] | None:
    """Gradients of the operands `inputs` where each result of an operation has the cotangent given, or None. None where these rules do not serve, and
    `jax.vjp` does: on accelerators, which ask for a precision when they are called, and for arrays that are not like its inputs."""
    if not has_x64() or common_device(sig.specs, sig.bop.device) is not CPU:
        return None
    closed = sig.closed()
    alike = [(x.shape, x.dtype) for x in primals] == [(a.shape, a.dtype) for a in closed.in_avals]
    if not (alike and can_pull(closed)):
        return None
    return pull(closed, inputs, primals, [*cotangents, *[None] * (len(closed.out_avals) - len(cotangents))])


def can_pull(closed: Any) -> bool:
    """Whether `pull` knows what to do with each equation: not with those that hold other programs, as loops and branches do, nor with effects."""
    jaxpr = closed.jaxpr
    return not jaxpr.effects and all([_has_rule(e) and not any([_is_program(k, v) for k, v in e.params.items()]) for e in jaxpr.eqns])


def _has_rule(equation: Any) -> bool:
    return not equation.invars or (equation.primitive in ad.primitive_jvps and not is_loop(equation.primitive))


def _is_program(name: str, param: Any) -> bool:
    if name == "update_jaxpr":  # how a scatter combines, which its primitive says too
        return False
    return any([hasattr(p, "jaxpr") or hasattr(p, "eqns") for p in (param if isinstance(param, (tuple, list)) else (param,))])


def pull(closed: Any, inputs: Sequence[int], primals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Gradients of the operands `inputs` of a jaxpr at `primals`.

    cotangents: of those results that have one, None of the others.
    """
    avals = closed.in_avals
    specs = [(a.shape, a.dtype) for a in avals] + [(avals[i].shape, avals[i].dtype) for i in inputs]
    moved: list[int] = []

    def tangents(*arrays: Any) -> tuple[Any, ...]:
        outs = _pushed(closed, arrays[: len(avals)], dict(zip([closed.jaxpr.invars[i] for i in inputs], arrays[len(avals) :], strict=True)))
        moved.extend([i for i, (t, c) in enumerate(zip(outs, cotangents, strict=True)) if t is not None and c is not None])
        return tuple([outs[i] for i in moved])

    linear = trace(tangents, "pull", specs)
    found = _transposed(linear, list(primals), [cotangents[i] for i in moved])
    return [jnp.zeros(avals[i].shape, avals[i].dtype) if g is None else g for i, g in zip(inputs, found, strict=True)]


def _pushed(closed: Any, primals: Sequence[Any], tangents: dict[Any, Any]) -> list[Any]:
    """The tangents of the results for those of some operands; None where nothing moves."""
    jaxpr = closed.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *primals], strict=True))
    for equation in jaxpr.eqns:
        primitive, several = equation.primitive, equation.primitive.multiple_results
        given = [_read(values, v) for v in equation.invars]
        if not any([_read(tangents, v) is not None for v in equation.invars if not isinstance(v, Literal)]):
            outs = primitive.bind(*given, **equation.params)
            values.update(zip(equation.outvars, outs if several else [outs], strict=True))
            continue
        moving = [tangents.get(v) if not isinstance(v, Literal) else None for v in equation.invars]
        moving = [ad.Zero(v.aval.to_tangent_aval()) if t is None else t for t, v in zip(moving, equation.invars, strict=True)]
        outs, moved = ad.primitive_jvps[primitive](given, moving, **equation.params)
        for v, out, t in zip(equation.outvars, outs if several else [outs], moved if several else [moved], strict=True):
            values[v] = out
            if type(t) is not ad.Zero:
                tangents[v] = t
    return [None if isinstance(v, Literal) else tangents.get(v) for v in jaxpr.outvars]


def _read(values: dict[Any, Any], v: Any) -> Any:
    return v.val if isinstance(v, Literal) else values.get(v)


def _transposed(closed: Any, primals: list[Any], cotangents: Sequence[Any]) -> list[Any]:
    """The cotangents of those operands of a jaxpr that come after `primals`, in which it is linear; None where nothing arrives."""
    jaxpr = closed.jaxpr
    known, linear = jaxpr.invars[: len(primals)], jaxpr.invars[len(primals) :]
    values = dict(zip([*jaxpr.constvars, *known], [*closed.consts, *primals], strict=True))
    moving, last = _moving(jaxpr, linear)
    for equation in _needed(jaxpr, moving, last):
        outs = equation.primitive.bind(*[_read(values, v) for v in equation.invars], **equation.params)
        values.update(zip(equation.outvars, outs if equation.primitive.multiple_results else [outs], strict=True))
    arrived: dict[Any, Any] = {}
    for v, given in zip(jaxpr.outvars, cotangents, strict=True):
        if not isinstance(v, Literal):
            _add(arrived, v, given)
    for equation in reversed(last):
        outs = [arrived.pop(v, None) for v in equation.outvars]
        if any([o is not None for o in outs]):
            operands = [ad.UndefinedPrimal(v.aval) if not isinstance(v, Literal) and v in moving else _read(values, v) for v in equation.invars]
            for v, operand, back in zip(equation.invars, operands, _back(equation, outs, operands), strict=True):
                if type(operand) is ad.UndefinedPrimal and back is not None and type(back) is not ad.Zero:  # some rules send to all operands
                    _add(arrived, v, back)
    return [arrived.get(v) for v in linear]


def _moving(jaxpr: Any, linear: Sequence[Any]) -> tuple[set[Any], list[Any]]:
    """The variables that are linear in others, and the equations that make them."""
    moving, last = set(linear), []
    for equation in jaxpr.eqns:
        if any([v in moving for v in equation.invars if not isinstance(v, Literal)]):
            moving.update(equation.outvars)
            last.append(equation)
    return moving, last


def _needed(jaxpr: Any, moving: set[Any], last: Sequence[Any]) -> list[Any]:
    """The other equations, without those that make what no linear one reads."""
    read = {v for e in last for v in e.invars if not isinstance(v, Literal)}
    found = []
    for equation in reversed(jaxpr.eqns):
        if moving.isdisjoint(equation.outvars) and not read.isdisjoint(equation.outvars):
            read.update([v for v in equation.invars if not isinstance(v, Literal)])
            found.append(equation)
    return found[::-1]


def _add(arrived: dict[Any, Any], v: Any, given: Any) -> None:
    found = arrived.get(v)
    arrived[v] = given if found is None else ad.add_jaxvals(found, given)


def _back(equation: Any, outs: list[Any], operands: list[Any]) -> Sequence[Any]:
    """What one equation sends to its operands: None to those that are known."""
    primitive = equation.primitive
    rule = ad.primitive_transposes.get(primitive)
    if primitive is lax.slice_p:
        return [_slice_filled(outs[0], operands[0].aval, **equation.params)]
    if rule is None:  # JAX has it in a form of its own
        return _back_by_jax(equation, outs, operands)
    given = [ad.Zero(v.aval) if o is None else o for o, v in zip(outs, equation.outvars, strict=True)]
    return rule(given if primitive.multiple_results else given[0], *operands, **equation.params)


def _slice_filled(part: Any, whole: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None) -> Any:
    """An array like `whole` that is `part` where the slice takes it from, and 0 elsewhere."""
    steps = strides or (1,) * len(start_indices)
    ends = [start + max(size - 1, 0) * step + (size > 0) for start, size, step in zip(start_indices, part.shape, steps, strict=True)]
    pads = [(start, size - end, step - 1) for start, size, end, step in zip(start_indices, whole.shape, ends, steps, strict=True)]
    return lax.pad(part, np.zeros((), part.dtype), pads)


def _back_by_jax(equation: Any, outs: list[Any], operands: list[Any]) -> Sequence[Any]:
    places = [i for i, o in enumerate(operands) if isinstance(o, ad.UndefinedPrimal)]

    def function(*moving: Any) -> Any:
        filled = list(operands)
        for i, x in zip(places, moving, strict=True):
            filled[i] = x
        return equation.primitive.bind(*filled, **equation.params)

    avals = [jax.ShapeDtypeStruct(operands[i].aval.shape, operands[i].aval.dtype) for i in places]
    given = [jnp.zeros(v.aval.shape, v.aval.dtype) if o is None else o for o, v in zip(outs, equation.outvars, strict=True)]
    transpose: Callable[..., Any] = jax.linear_transpose(function, *avals)
    found: list[Any] = [None] * len(operands)
    for i, back in zip(places, transpose(given if equation.primitive.multiple_results else given[0]), strict=True):
        found[i] = back
    return found


# ---------------------------------------------------------------------- backward operations


def of_inputs(sig: Signature, inputs: Sequence[int], primals: list[Any]) -> Callable[..., list[Any]]:
    """The floating point results as a function of the operands `inputs` alone, the others being `primals`."""

    def function(*chosen: Any) -> list[Any]:
        filled = list(primals)
        for i, x in zip(inputs, chosen, strict=True):
            filled[i] = x
        outs = sig.function(*filled)
        return [o for o, a in zip(outs, sig.avals, strict=False) if dtypes.is_float(a.dtype)]

    return function


def pull_back(sig: Signature, inputs: tuple[int, ...], defined: tuple[bool, ...], primals: list[Any], cotangents: list[Any]) -> Any:
    """Gradients of `inputs`, JAX's vjp with PyTorch's convention: the conjugate of what comes in and of what goes out."""
    at = iter(cotangents)
    given = [
        (conj_of(next(at)) if there else None) if dtypes.is_float(aval.dtype) else None
        for aval, there in zip(sig.avals, defined, strict=True)
    ]  # fmt: skip
    found = gradients(sig, inputs, primals, given)
    if found is None:
        _, pull = jax.vjp(of_inputs(sig, inputs, primals), *(primals[i] for i in inputs))
        floats = [(g, a) for g, a in zip(given, sig.avals, strict=True) if dtypes.is_float(a.dtype)]
        found = pull([jnp.zeros(a.shape, a.dtype) if g is None else g for g, a in floats])
    return single_of([conj_of(g) for g in found])


def from_jax(sig: Signature, inputs: tuple[int, ...], defined: tuple[bool, ...]) -> Any:
    count = sum(defined)

    def backward(*arrays: Any) -> Any:
        cotangents = [
            g for g, a in zip(arrays[:count], [a for a, d in zip(sig.avals, defined, strict=True) if d], strict=True)
            if dtypes.is_float(a.dtype)
        ]  # fmt: skip
        return pull_back(sig, inputs, defined, list(arrays[count : count + len(sig.specs)]), cotangents)

    return lambda specs: backward


def filled_in(backward: Callable[..., Any], count: int, kept: Sequence[int], specs: Sequence[ArgSpec]) -> Any:
    """`backward`, called with as many gradients as `count` and those of its operands alone that it reads."""

    def called(*arrays: Any) -> Any:
        operands = [jnp.zeros(s.shape, s.dtype) if isinstance(s, Aval) else jnp.zeros((), NUMBER_DTYPES[s]) for s in specs]
        for place, array in zip(kept, arrays[count:], strict=True):
            operands[place] = array
        return backward(*arrays[:count], *operands)

    return called


def transposed(sig: Signature, inputs: tuple[int, ...], saved: tuple[int, ...], defined: tuple[bool, ...]) -> Any:
    count = sum(defined)
    bound: Any = sig.bop
    transpose: Any = bound.operator.transpose if isinstance(bound, BoundOperator) else None
    if transpose is not None:
        given: Any = sig.specs[0]
        return lambda specs: lambda grad, *kept: transpose(grad, given.shape, **bound._keywords())

    def backward(*arrays: Any) -> Any:
        # A linear function's derivative does not depend on where it is taken.
        primals = [None if i in saved else jnp.zeros(s.shape, s.dtype) for i, s in enumerate(sig.specs)]
        for i, x in zip(saved, arrays[count:], strict=True):
            if i >= 0:
                primals[i] = x
        return pull_back(sig, inputs, defined, primals, list(arrays[:count]))

    return lambda specs: backward
