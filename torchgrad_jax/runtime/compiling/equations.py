"""Equations in the place of others: what rewrites jaxprs shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from torchgrad_jax.runtime._jax_compat import x64


@x64
def calling(function: Callable[..., Any], avals: Sequence[Any]) -> Any:
    """A closed jaxpr of one equation that calls the function, under `jax.jit`."""
    with jax.disable_jit(False):
        return jax.make_jaxpr(jax.jit(function))(*[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals])


def rewritten_within(eqn: Any, rewrite: Callable[[Any], Any]) -> Any:
    """An equation with each (open) jaxpr among its parameters as `rewrite` returns it."""

    def parameter(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)([parameter(one) for one in value]) if type(value) in (tuple, list) else value
        if hasattr(value, "consts") and hasattr(value, "jaxpr"):
            return value.replace(jaxpr=rewrite(value.jaxpr))
        return rewrite(value) if hasattr(value, "eqns") else value

    return eqn.replace(params={name: parameter(value) for name, value in eqn.params.items()})
