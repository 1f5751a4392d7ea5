"""Equations that XLA's compilers carry out wrongly, in forms that they do not: `masks` and `writes` say which, and why."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

from torchgrad_jax.runtime.baseline import jaxprs_in
from torchgrad_jax.runtime.compiling.equations import calling, rewritten_within
from torchgrad_jax.runtime.compiling.masks import converts_mask, selected
from torchgrad_jax.runtime.compiling.writes import in_memory_of_their_own, may_overtake, written_apart


def for_xla(closed: Any, writes: bool = True) -> Any:
    """A closed jaxpr with other equations in the place of such, within loops and branches too. writes: False if those that write may stay."""
    return closed.replace(jaxpr=_rewritten(closed.jaxpr, writes))


def misleads(jaxpr: Any, writes: bool = True) -> bool:
    """Whether there is such an equation, within loops and branches too."""
    apart = in_memory_of_their_own(jaxpr)
    return any([_form_of(eqn, apart, writes) is not None or any([misleads(j, writes) for j in jaxprs_in(eqn)]) for eqn in jaxpr.eqns])


def traced_for_xla(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """`function`, which returns a tuple, traced where it is called and its jaxpr called instead."""
    return lambda *arrays: tuple(jaxpr_as_fun(for_xla(jax.make_jaxpr(function)(*arrays)))(*arrays))


def _form_of(eqn: Any, apart: set[Any], writes: bool) -> Callable[..., Any] | None:
    """The function to be called in the place of an equation, None where it stays."""
    if converts_mask(eqn):
        return selected(eqn)
    return written_apart(eqn) if writes and may_overtake(eqn, apart) else None


def _rewritten(jaxpr: Any, writes: bool) -> Any:
    if not misleads(jaxpr, writes):
        return jaxpr
    eqns, apart = [], in_memory_of_their_own(jaxpr)
    for eqn in jaxpr.eqns:
        form = _form_of(eqn, apart, writes)
        if form is not None:
            made = for_xla(calling(form, [v.aval for v in eqn.invars]), writes).jaxpr.eqns[0]
            eqn = made.replace(invars=eqn.invars, outvars=eqn.outvars)
        elif any([misleads(j, writes) for j in jaxprs_in(eqn)]):
            eqn = rewritten_within(eqn, partial(_rewritten, writes=writes))
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns)
