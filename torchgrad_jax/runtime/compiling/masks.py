"""Booleans that become numbers, as XLA must see them.

XLA rewrites `convert(mask) * x` as `select(mask, x, 0)`, in sums of products too: NaN and infinity times 0 would be 0. What it knows as
`select(mask, 1, 0)` it multiplies by, and fuses as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax
from jax import numpy as jnp


def converts_mask(eqn: Any) -> bool:
    """Whether it makes numbers of booleans."""
    return eqn.primitive.name == "convert_element_type" and eqn.invars[0].aval.dtype.kind == "b" and eqn.params["new_dtype"].kind != "b"


def selected(eqn: Any) -> Callable[[Any], Any]:
    """A function of the booleans that selects 1 or 0 by them."""
    shape, dtype = eqn.outvars[0].aval.shape, eqn.params["new_dtype"]
    return lambda mask: lax.select(mask, jnp.ones(shape, dtype), jnp.zeros(shape, dtype))
