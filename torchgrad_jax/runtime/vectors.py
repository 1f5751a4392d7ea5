"""Element-wise operations seen as operations of vectors: one signature, and one plan, for arrays of all shapes that broadcast together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.runtime.value import aval_of

# To what lengths operands are filled up, where a plan serves one length only; longer ones take long enough by themselves.
_FILLED = (16, 64, 256, 1024)
# The length that stands for all from one on, and from how many elements on it pays to write over an operand.
LENGTH, _MANY = 4096, 1024


class Vectors(NamedTuple):
    """An operation's operands as vectors, of a length that stands for many: `specs`.

    shape: that of its own result; overwrites: whether results may be written over operands, which all have it but for 0-dim ones, and are large.
    """

    specs: tuple[Any, ...]
    shape: tuple[int, ...]
    overwrites: bool


def as_vectors(specs: Sequence[Any]) -> Vectors | None:
    """The operands of an element-wise operation as vectors; None where they are. 0-dim ones stay so: they promote otherwise. ValueError where
    they do not broadcast."""
    shapes = [s.shape for s in specs if not isinstance(s, type) and s.shape]
    if not shapes:
        return None
    alike = shapes.count(shapes[0]) == len(shapes)
    shape = shapes[0] if alike else np.broadcast_shapes(*shapes)
    elements = math.prod(shape)
    flat = (LENGTH if elements else 0,)  # none may be a special case
    if alike and shape == flat:
        return None
    specs = tuple([s if isinstance(s, type) or not s.shape else aval_of(flat, s.dtype, s.device) for s in specs])
    return Vectors(specs, shape, alike and elements >= _MANY)


def specs_of_vectors(specs: Sequence[Any]) -> tuple[Any, ...] | None:
    """Those that stand for operands of an element-wise operation in all its shapes. None where 0-dim ones, of which there are no others, are of
    several dtypes: vectors would promote otherwise."""
    found = as_vectors(specs)
    if found is not None:
        return found.specs
    arrays = [s for s in specs if not isinstance(s, type)]
    if any([s.shape for s in arrays]):
        return tuple(specs)
    if len({s.dtype for s in arrays}) != 1:
        return None
    return tuple([s if isinstance(s, type) else aval_of((LENGTH,), s.dtype, s.device) for s in specs])


def filled_length(shape: tuple[int, ...]) -> int:
    """The length that vectors of so many elements are filled up to; 0 where there are none, or too many."""
    elements = math.prod(shape)
    return next((length for length in _FILLED if elements <= length), 0) if elements else 0


def with_length(specs: Sequence[Any], length: int) -> tuple[Any, ...]:
    """The operands of an element-wise operation as vectors of this length."""
    return tuple([s if isinstance(s, type) or not s.shape else aval_of((length,), s.dtype, s.device) for s in specs])


def filling_up(function: Callable[..., Any], shape: tuple[int, ...], length: int) -> Callable[..., tuple[Any, ...]]:
    """A function of vectors of this length that is element-wise, of operands that broadcast to a shape. The last elements are repeated."""
    elements = math.prod(shape)

    def filled(x: Any) -> Any:
        if x.ndim == 0:
            return x
        made = np.empty(length, x.dtype)
        made[:elements].reshape(shape)[...] = x
        made[elements:] = made[elements - 1]
        return made

    return lambda *arrays: tuple([made[:elements].reshape(shape) for made in function(*[filled(a) for a in arrays])])
