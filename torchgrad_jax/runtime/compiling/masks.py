"""Booleans that become numbers, as XLA must see them.

XLA rewrites `convert(mask) * x` as `select(mask, x, 0)`, in sums of products too: NaN and infinity times 0 would be 0. What it knows as
`select(mask, 1, 0)` it multiplies by, and fuses as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.runtime._jax_compat import x64
from torchgrad_jax.runtime.baseline import jaxprs_in


def with_masks_selected(closed: Any) -> Any:
    """A closed jaxpr with a selection of 1 or 0 in place of each conversion of a boolean, within loops and branches too."""
    return closed.replace(jaxpr=_rewritten(closed.jaxpr)) if converts_masks(closed.jaxpr) else closed


def converts_masks(jaxpr: Any) -> bool:
    """Whether a boolean is converted to numbers somewhere, within loops and branches too."""
    return any([_converts_mask(eqn) or any(map(converts_masks, jaxprs_in(eqn))) for eqn in jaxpr.eqns])


def selecting_masks(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """`function`, which returns a tuple, traced where it is called and its jaxpr called instead."""
    from jax.extend.core import jaxpr_as_fun

    return lambda *arrays: tuple(jaxpr_as_fun(with_masks_selected(jax.make_jaxpr(function)(*arrays)))(*arrays))


def _converts_mask(eqn: Any) -> bool:
    return eqn.primitive.name == "convert_element_type" and eqn.invars[0].aval.dtype.kind == "b" and eqn.params["new_dtype"].kind != "b"


def _rewritten(jaxpr: Any) -> Any:
    eqns = []
    for eqn in jaxpr.eqns:
        if _converts_mask(eqn):
            aval = eqn.outvars[0].aval
            eqn = _selection(aval.shape, aval.dtype).replace(invars=eqn.invars, outvars=eqn.outvars)
        elif any(map(converts_masks, jaxprs_in(eqn))):
            eqn = eqn.replace(params={name: _parameter(value) for name, value in eqn.params.items()})
        eqns.append(eqn)
    return jaxpr.replace(eqns=eqns)


def _parameter(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)([_parameter(one) for one in value]) if type(value) in (tuple, list) else value
    if hasattr(value, "consts") and hasattr(value, "jaxpr"):
        return with_masks_selected(value)
    return _rewritten(value) if hasattr(value, "eqns") else value


@lru_cache(maxsize=1024)
@x64
def _selection(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """An equation that selects 1 or 0 by a boolean array of this shape."""

    def select(mask: Any) -> Any:
        return lax.select(mask, jnp.ones(shape, dtype), jnp.zeros(shape, dtype))

    with jax.disable_jit(False):
        return jax.make_jaxpr(jax.jit(select))(jax.ShapeDtypeStruct(shape, np.bool_)).jaxpr.eqns[0]
