"""Vector products in space, and their gradients: their forms on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

Array = np.ndarray

# Of each element of a product the places of the factors, whose product is taken once and the other way round.
_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])


def _cross(x: Array, y: Array, dim: int) -> Array:
    found = x.take(_NEXT, dim) * y.take(_LAST, dim)
    found -= x.take(_LAST, dim) * y.take(_NEXT, dim)
    return found


def _are_alike(*arrays: Array) -> bool:
    first = arrays[0]
    return first.dtype.char in "fdil" and all([a.dtype == first.dtype and a.shape == first.shape for a in arrays])


cross = Forms(_cross, lambda x, y, dim: stand_in(x.shape, x.dtype) if _are_alike(x, y) else None, True)


@cache
def cross_grads(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of `wanted` factors, "self" and "other"."""

    def function(grad: Array, avals: Sequence[Aval], *saved: Array, dim: int) -> Any:
        made = []
        if "self" in wanted:
            made.append(_cross(saved[-1], grad, dim))
        if "other" in wanted:
            made.append(_cross(grad, saved[0], dim))
        return made[0] if len(made) == 1 else tuple(made)

    def result(grad: Array, avals: Sequence[Aval], *saved: Array, dim: int) -> Any:
        if not _are_alike(grad, *saved) or any([aval.shape != grad.shape for aval in avals]):
            return None
        made = [stand_in(grad.shape, grad.dtype) for _ in wanted]
        return made[0] if len(made) == 1 else tuple(made)

    return Forms(function, result, True)
