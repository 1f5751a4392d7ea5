"""Operators along one dimension: what one does with each part of a batch it does with the whole of it along the dimension after that. So do its
derivatives of every order, which then have their forms, and `jax.vmap` need not be traced for them."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.declaration.derivative import Plan, plan
from torchgrad_jax.declaration.forward import Jvp, jvp_of
from torchgrad_jax.declaration.operator import ARRAY, BoundOperator, Static
from torchgrad_jax.declaration.vjp import Vjp
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.value import Aval, aval_of

# Their argument `dim` is of the first operand, and other dimensions do not know of each other.
_OPERATORS = frozenset(("cat", "cumsum", "log_softmax", "select", "slice", "softmax"))


def whole(sig: Signature, size: int) -> Signature | None:
    """The Signature of an operation on arrays with a dimension of this size in front, which is for each part what `sig` is. None where none is
    known."""
    if sig.check is not None:
        return None
    specs = tuple([aval_of((size, *s.shape), s.dtype, s.device) if isinstance(s, Aval) else s for s in sig.specs])
    try:
        bop = _shifted(sig, size) if isinstance(sig.bop, BoundOperator) else _derived(sig.bop, size)
        found = None if bop is None else signature(bop, specs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None  # what is empty may be a case of its own
    alike = found is not None and [(a.shape, a.dtype) for a in found.avals] == [((size, *a.shape), a.dtype) for a in sig.avals]
    return found if alike else None


def _shifted(sig: Signature, size: int) -> BoundOperator | None:
    bound: Any = sig.bop
    ndim = next((s.ndim for s in sig.specs if isinstance(s, Aval)), 0)
    if bound.name == "expand" and ndim == sig.avals[0].ndim:
        return bound.operator.bind((ARRAY, Static((size, *sig.avals[0].shape))), bound.device)
    if bound.name not in _OPERATORS or not ndim:
        return None
    parameters = bound.operator.schema.parameters
    layout = [Static(1 + item.value % ndim) if p.name == "dim" else item for p, item in zip(parameters, bound.layout, strict=True)]
    return bound.operator.bind(tuple(layout), bound.device)


def _derived(bop: Any, size: int) -> Any:
    """The derivative of what is known for the whole."""
    if not isinstance(bop, Vjp):
        return None
    given: Any = bop.of_plan
    base = whole(given._sig, size)
    made: Any = None if base is None else plan(base, given.inputs)
    if base is None or type(made) is not Plan or made.inputs != given.inputs:
        return None
    if made.saves != given.saves and len(made.inputs) == 1:
        made = made.apart()[0][0]
    if made.saves != given.saves:
        return None
    return jvp_of(base, made) if isinstance(bop, Jvp) else made.vjp_of(bop.which)
