"""Element-wise operations seen as operations of vectors: one signature, and one plan, for arrays of all shapes that broadcast together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.runtime.value import aval_of

# The lengths that stand for all: a few elements, and so many that it pays to write over an operand.
_FEW, _MANY = 6, 4096


class Vectors(NamedTuple):
    """An operation's operands as vectors, of a length that stands for many: `specs`.

    shape: that of its own result; alike: whether all its operands but 0-dim ones have it.
    """

    specs: tuple[Any, ...]
    shape: tuple[int, ...]
    alike: bool


def as_vectors(specs: Sequence[Any]) -> Vectors | None:
    """The operands of an element-wise operation as vectors; None where they are. 0-dim ones stay so: they promote otherwise. ValueError where
    they do not broadcast."""
    shapes = [s.shape for s in specs if not isinstance(s, type) and s.shape]
    if not shapes:
        return None
    alike = shapes.count(shapes[0]) == len(shapes)
    shape = shapes[0] if alike else np.broadcast_shapes(*shapes)
    flat = (_length_for(math.prod(shape)),)
    if alike and shape == flat:
        return None
    return Vectors(tuple([s if isinstance(s, type) or not s.shape else aval_of(flat, s.dtype, s.device) for s in specs]), shape, alike)


def _length_for(elements: int) -> int:
    """The length of the vectors that stand for arrays of so many elements. None and one may be special cases."""
    return elements if elements < 2 else _FEW if elements < _MANY // 4 else _MANY
