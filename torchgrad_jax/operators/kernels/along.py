"""What runs along a dimension, is read and written at places, or selected, of float32 and float64 by loops of C's, as primitives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters import ad

from torchgrad_jax.declaration.converting import where
from torchgrad_jax.runtime.baseline.loops import AT_PLACE, LAST, LEAST, MOST, SUM, are_beside, how_along
from torchgrad_jax.runtime.compiling import primitives
from torchgrad_jax.runtime.compiling.foreign import ALONG

Shape = tuple[int, ...]
# From so many elements on XLA's own code, which joins with what is around it, takes longer.
_LEAST = 1 << 14


def fits(*arrays: Any, places: Any = ()) -> bool:
    """Whether the loops are for such arrays, and for such indices."""
    x = arrays[0]
    known = x.ndim > 0 and x.dtype.char in "fd" and all([a.size > 0 and a.dtype == x.dtype for a in arrays])
    return known and all([p.size > 0 and p.dtype == np.int64 for p in places]) and primitives.has(ALONG)


def _loop(name: str, said: Callable[..., Any], shapes: Callable[..., list[Shape]], places: bool = False, least: int = 0) -> Any:
    return primitives.primitive(name, said, primitives.Loop(ALONG, partial(how_along, name), shapes, least, places), leading=True)


# ---------------------------------------------------------------------- scans


def scan(name: str, said: Callable[..., Any], results: int = 1, places: bool = False) -> Callable[..., list[Any]]:
    """The loop of this name of arrays of one shape, along a dimension. said: the same by jax.numpy, of them and by keyword `dim` and `reverse`.
    results: how many it has; places: whether the second one is indices."""

    def by_keyword(*arrays: Any, dim: int, length: int, told: Shape) -> list[Any]:
        return said(*arrays, dim=dim, reverse=bool(told[0]))

    made = _loop(name, by_keyword, lambda x, *_, **__: [x.shape] * results, places)

    def run(*arrays: Any, dim: int, reverse: bool = False) -> list[Any]:
        x = arrays[0]
        dim = dim % x.ndim - x.ndim
        return made.bind(*arrays, dim=dim, length=x.shape[dim], told=(int(reverse),))

    return run


# ---------------------------------------------------------------------- places


def _resized(shape: Shape, dim: int, length: int) -> Shape:
    return (*shape[: len(shape) + dim], length, *shape[len(shape) + dim + 1 :])


def _key(index: Any, dim: int) -> tuple[Any, ...]:
    return tuple([index if d == index.ndim + dim else lax.broadcasted_iota(index.dtype, index.shape, d) for d in range(index.ndim)])


def _said_picked(x: Any, index: Any, *, dim: int, **_: Any) -> list[Any]:
    return [x.at[_key(index, dim)].get(mode="promise_in_bounds", wrap_negative_indices=False)]


def _said_put(values: Any, index: Any, x: Any = None, *, dim: int, length: int, told: Shape) -> list[Any]:
    how, shape = told[1], _resized(values.shape, dim, length)
    if x is None and told[0] == 1 and how in (LAST, SUM):  # fuses, as no scatter does
        here = lax.broadcasted_iota(index.dtype, shape, len(shape) + dim) == index
        return [where(here, values, jnp.zeros((), values.dtype))]
    at = (jnp.zeros(shape, values.dtype) if x is None else x).at[_key(index, dim)]
    write = {LAST: at.set, SUM: at.add, MOST: at.max, LEAST: at.min}[how]
    return [write(values, mode="promise_in_bounds", wrap_negative_indices=False)]


_PICKED = _loop("pick_along", _said_picked, lambda x, index, **_: [index.shape], least=_LEAST)
_PUT = _loop("put_along", _said_put, lambda values, *_, dim, length, told: [_resized(values.shape, dim, length)], least=_LEAST)


def _picked_tangent(primals: Any, tangents: Any, **how: Any) -> Any:
    (x, index), tangent = primals, tangents[0]
    return _PICKED.bind(x, index, **how), [tangent] if type(tangent) is ad.Zero else _PICKED.bind(tangent, index, **how)


def _picked_transposed(grads: Any, x: Any, index: Any, *, dim: int, length: int, told: Shape) -> list[Any]:
    return [put(grads[0], index, dim, SUM, length=length) if type(grads[0]) is not ad.Zero else None, None]


def _put_tangent(primals: Any, tangents: Any, *, told: Shape, **how: Any) -> Any:
    if told[1] != SUM:
        return jax.jvp(partial(_said_put, told=told, **how), primals, tuple(map(ad.instantiate_zeros, tangents)))
    values, index, *x = [ad.instantiate_zeros(t) if i != 1 else primals[1] for i, t in enumerate(tangents)]
    return _PUT.bind(*primals, told=told, **how), _PUT.bind(values, index, *x, told=told, **how)


def _put_transposed(grads: Any, values: Any, index: Any, *x: Any, dim: int, **_: Any) -> list[Any]:
    if type(grads[0]) is ad.Zero:
        return [None] * (2 + len(x))
    own = picked(grads[0], index, dim) if ad.is_undefined_primal(values) else None
    return [own, None, *[grads[0] if ad.is_undefined_primal(a) else None for a in x]]


ad.primitive_jvps[_PICKED], ad.primitive_transposes[_PICKED] = _picked_tangent, _picked_transposed
ad.primitive_jvps[_PUT], ad.primitive_transposes[_PUT] = _put_tangent, _put_transposed


def picked(x: Any, index: Any, dim: int) -> Any:
    """The elements at `index`, in range, along `dim`."""
    dim = dim % x.ndim - x.ndim
    if fits(x, places=(index,)) and are_beside(x.shape, index.shape, dim):
        return _PICKED.bind(x, index, dim=dim, length=x.shape[dim], told=(index.shape[dim],))[0]
    return _said_picked(x, index, dim=dim)[0]


def put(values: Any, index: Any, dim: int, how: int, x: Any = None, length: int = 0) -> Any:
    """`values` put where `index`, of the same shape and in range, says, along `dim` of `x`; without one, of zeros, `length` along it. how: what
    becomes of several for the same place."""
    dim = dim % values.ndim - values.ndim
    given, length = (values,) if x is None else (values, x), length if x is None else x.shape[dim]
    told = (index.shape[dim], how, int(x is not None))
    if length and fits(*given, places=(index,)) and values.shape == index.shape and (x is None or are_beside(x.shape, index.shape, dim)):
        return _PUT.bind(values, index, *given[1:], dim=dim, length=length, told=told)[0]
    return _said_put(values, index, x, dim=dim, length=length, told=told)[0]


# ---------------------------------------------------------------------- order


def selection(said: Callable[..., Any]) -> Callable[..., list[Any]]:
    """The loop for one element of each order along a dimension. said: the same by jax.numpy, of an array, and by keyword `dim`, `which` and
    `position`."""
    made = _loop(
        "select_along", lambda x, *, dim, length, told: said(x, dim=dim, which=told[0], position=told[1]),
        lambda x, *, dim, **_: [_resized(x.shape, dim, 1)] * 2, places=True,
    )  # fmt: skip

    def run(x: Any, dim: int, which: int = AT_PLACE, position: int = 0) -> list[Any]:
        """The element and its place, `dim` kept."""
        dim = dim % x.ndim - x.ndim
        return made.bind(x, dim=dim, length=x.shape[dim], told=(which, position))

    return run


def firsts(name: str, said: Callable[..., Any]) -> Callable[[Any, int], list[Any]]:
    """The loop of this name for the first extreme along a dimension, and its place, `dim` kept. said: the same by jax.numpy, of an array, and by
    keyword `dim`."""

    def by_keyword(x: Any, *, dim: int, **_: Any) -> list[Any]:
        return said(x, dim=dim + x.ndim)

    made = _loop(name, by_keyword, lambda x, *, dim, **_: [_resized(x.shape, dim, 1)] * 2, places=True, least=_LEAST)

    def run(x: Any, dim: int) -> list[Any]:
        return made.bind(x, dim=dim % x.ndim - x.ndim, length=x.shape[dim], told=())

    return run
