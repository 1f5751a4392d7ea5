"""Primitives that only call a jaxpr: their equations take its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torchgrad_jax.runtime._jax_compat import function_of
from torchgrad_jax.runtime.baseline import blocks
from torchgrad_jax.runtime.baseline.convolutions import fits_loops, has_loops
from torchgrad_jax.runtime.baseline.cost import multiplies_natively
from torchgrad_jax.runtime.baseline.loops import LOOPS, OTHER_LOOPS

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


# The names of functions with derivatives of their own that are written out for XLA, and are what their last part says.
WHOLE = "torchgrad_jax."
# Of these those that only C has, of arrays of one shape and of numbers: where it is not compiled they are what they say.
BY_C = WHOLE + "c."


def name_of(eqn: Any) -> str:
    """What an equation is found by: its primitive's name, or that of a function that is taken as a whole. That is of operands of one shape: others
    have got a dimension more each, not all at the same place."""
    name = function_of(eqn.params["call_jaxpr"]) if eqn.primitive.name == "custom_jvp_call" else ""
    if not name.startswith(WHOLE) or (name.startswith(BY_C) and not blocks.by_numbers):
        return eqn.primitive.name
    shapes = {v.aval.shape for v in (*eqn.invars, *eqn.outvars)}
    if name.startswith(BY_C):
        shapes -= {()} - {eqn.outvars[0].aval.shape}
    return name if len(shapes) == 1 else eqn.primitive.name


def called(eqn: Any) -> tuple[Any, list[Any]] | None:
    """The jaxpr that an equation does nothing but call, and its constants; None for other equations."""
    if name_of(eqn) != eqn.primitive.name:
        return None
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


# What XLA's CPU compiler makes a kernel of its own for: it takes as long as several primitives that are fused. A call of a function of ours does not.
_APART = re.compile("dot_general|conv_|reduce_(?!precision)|arg(max|min)|cum|sort|top_k|gather|scatter|while|scan|cond|fft|lu|qr|eig|svd|chol|tri")
KERNEL = 6
# From how many elements on sine and cosine are written out for XLA (`operators/kernels/circular.py`), and of how many primitives they are then.
MANY, _WRITTEN_OUT = 1 << 14, 70


def compiling_weight(jaxpr: Any) -> int:
    """What compiling costs as a number of primitives of the cheapest kind, those within loops and branches included."""
    return sum([_weight(eqn) + sum([compiling_weight(inner) for inner in _compiled_in(eqn)]) for eqn in jaxpr.eqns])


def _compiled_in(eqn: Any) -> list[Any]:
    """The jaxprs that are compiled where an equation is: not those by which a system's derivatives are found."""
    return [eqn.params["jaxprs"].solve.jaxpr] if eqn.primitive.name == "custom_linear_solve" else list(jaxprs_in(eqn))


def _weight(eqn: Any) -> int:
    if called(eqn) is not None:
        return 0
    if eqn.primitive.name.startswith(WHOLE):
        return _WRITTEN_OUT if eqn.invars[0].aval.size >= MANY else 1
    return KERNEL if _APART.match(eqn.primitive.name) and not is_native(eqn) else 1


def is_native(eqn: Any) -> bool:
    """Whether the interpreter and XLA's programs call the same function of C's for it."""
    if eqn.primitive.name == "dot_general":
        return multiplies_natively(eqn.outvars[0].aval.dtype)
    return eqn.primitive.name in _BY_LOOPS or (fits_loops(eqn) and has_loops())


_BY_LOOPS = frozenset((
    "max_pool", "max_pool_within", "at_places", "grid_sample", "grouped_convolution", "resample", "rowwise", "lstm_steps", "lstm_steps_grad",
    "attention", "attention_grad", *LOOPS, *OTHER_LOOPS,
))  # fmt: skip


def contains(jaxpr: Any, primitive: str) -> bool:
    """Whether there is one of this name, within loops and branches too."""
    return any([eqn.primitive.name == primitive or any([contains(inner, primitive) for inner in jaxprs_in(eqn)]) for eqn in jaxpr.eqns])
