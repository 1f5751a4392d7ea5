"""Softmax and standardization of rows of float32 by loops of C's: a pass over memory in place of ten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.runtime.baseline.loops import are_for_rows, how_of_rows
from torchgrad_jax.runtime.compiling import primitives
from torchgrad_jax.runtime.compiling.foreign import ROWS

# From so many elements on XLA's own code, which one thread runs, takes longer than the loop, which joins nothing with what is around it.
_LEAST = 1 << 15
# By what is asked for: what jax.numpy says, and the shapes of the results.
_said: dict[int, Callable[..., Any]] = {}
_made: dict[int, Callable[..., list[tuple[int, ...]]]] = {}


def _function(*arrays: Any, of: int, length: int, eps: float, parameters: int, inner: int) -> list[Any]:
    return _said[of](*arrays, length=length, eps=eps, inner=inner)


def _shapes(x: Any, *others: Any, of: int, length: int, eps: float, parameters: int, inner: int) -> list[tuple[int, ...]]:
    return _made[of](x.shape, length)


_LOOP = primitives.primitive("rowwise", _function, primitives.Loop(ROWS, how_of_rows, _shapes, _LEAST))


def knows(*arrays: Any) -> bool:
    """Whether the loops are for such arrays, None among them for those that are missing, here."""
    return are_for_rows(*arrays) and primitives.has(ROWS)


def said(of: int, function: Callable[..., Any], made: Callable[..., list[tuple[int, ...]]]) -> None:
    """What jax.numpy says of one of the things that the loops compute, of arrays and by keyword `length`, of a row, `eps` and `inner`; and the shapes
    of its results, of the shape of its first operand and the length."""
    _said[of], _made[of] = function, made


def by_rows(of: int, *arrays: Any, length: int, eps: float = 0.0, parameters: int = 0, inner: int = 1) -> list[Any]:
    """What is asked for of rows of `length` elements: see `baseline.loops`. inner: how far these are from one another, which softmax may ask; of
    images, how many channels they have."""
    return _LOOP.bind(*arrays, of=of, length=length, eps=float(eps), parameters=parameters, inner=inner)
