"""Equations that XLA's compilers carry out wrongly, in forms that they do not: `masks` and `writes` say which, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

from torchgrad_jax.runtime.baseline import jaxprs_in
from torchgrad_jax.runtime.compiling.equations import calling, rewritten_within
from torchgrad_jax.runtime.compiling.masks import converts_mask, selected
from torchgrad_jax.runtime.compiling.writes import in_memory_of_their_own, may_overtake, written_apart


def for_xla(closed: Any) -> Any:
    """A closed jaxpr with other equations in the place of such, within loops and branches too."""
    return closed.replace(jaxpr=_rewritten(closed.jaxpr))


def misleads(jaxpr: Any) -> bool:
    """Whether there is such an equation, within loops and branches too."""
    apart = in_memory_of_their_own(jaxpr)
    return any([_form_of(eqn, apart) is not None or any(map(misleads, jaxprs_in(eqn))) for eqn in jaxpr.eqns])


def traced_for_xla(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """`function`, which returns a tuple, traced where it is called and its jaxpr called instead."""
    return lambda *arrays: tuple(jaxpr_as_fun(for_xla(jax.make_jaxpr(function)(*arrays)))(*arrays))


def _form_of(eqn: Any, apart: set[Any]) -> Callable[..., Any] | None:
    """The function to be called in the place of an equation, None where it stays."""
    if converts_mask(eqn):
        return selected(eqn)
    return written_apart(eqn) if may_overtake(eqn, apart) else None


def _rewritten(jaxpr: Any) -> Any:
    if not misleads(jaxpr):
        return jaxpr
    eqns, apart = [], in_memory_of_their_own(jaxpr)
    for eqn in jaxpr.eqns:
        form = _form_of(eqn, apart)
        if form is not None:
            eqn = for_xla(calling(form, [v.aval for v in eqn.invars])).jaxpr.eqns[0].replace(invars=eqn.invars, outvars=eqn.outvars)
        elif any(map(misleads, jaxprs_in(eqn))):
            eqn = rewritten_within(eqn, _rewritten)
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns)
