"""Element-wise functions that the interpreter takes as a whole (`baseline/elementwise.py`), by a loop of C's."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration.converting import where, zeros_like
from torchgrad_jax.runtime.baseline.inlining import BY_C, WHOLE

_REALS = (np.dtype(np.float32), np.dtype(np.float64))


def of_reals(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Of an element-wise function of arrays: of float32 and float64 taken as a whole, by that name. Its derivative is that of what it says."""

    def named(function: Callable[..., Any]) -> Callable[..., Any]:
        def said(*arrays: Any) -> Any:
            return function(*arrays)

        said.__name__ = WHOLE + name
        whole = jax.custom_jvp(said)

        @whole.defjvp
        def jvp(primals: Any, tangents: Any) -> Any:
            return jax.jvp(function, primals, tangents)

        def chosen(*arrays: Any) -> Any:
            first = arrays[0]
            alike = all([a.dtype == first.dtype and a.shape == first.shape for a in arrays])
            return whole(*arrays) if alike and first.dtype in _REALS else function(*arrays)

        return chosen

    return named


def by_c(name: str, tangents: Any = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same of a function that the interpreter has in C (`baseline/special.py`), of arrays of one shape and of numbers.

    tangents: those of the result, of tangents and arguments, where they are not those of what the function says."""

    def named(function: Callable[..., Any]) -> Callable[..., Any]:
        def said(*arrays: Any) -> Any:
            return function(*arrays)

        said.__name__ = BY_C + name
        whole = jax.custom_jvp(said)

        @whole.defjvp
        def jvp(primals: Any, given: Any) -> Any:
            return jax.jvp(function, primals, given) if tangents is None else (whole(*primals), tangents(given, primals))

        def chosen(*arrays: Any) -> Any:
            dtype, shape = arrays[0].dtype, jnp.broadcast_shapes(*[a.shape for a in arrays])
            if dtype not in _REALS or any([a.dtype != dtype for a in arrays]):
                return function(*arrays)
            return whole(*[a if a.shape in ((), shape) else jnp.broadcast_to(a, shape) for a in arrays])

        return update_wrapper(chosen, function, updated=())

    return named


def modulo(x: Any, y: Any) -> Any:
    """The remainder with the sign of the divisor."""
    found = lax.rem(x, y)
    return where((found != 0) & ((found < 0) != (y < 0)), found + y, found)


remainder = of_reals("remainder")(modulo)


@of_reals("floor_divide")
def floor_divide(x: Any, y: Any) -> Any:
    """The quotient rounded down, consistent with the remainder."""
    rest = lax.rem(x, y)
    quotient = (x - rest) / y
    quotient = where((rest != 0) & ((y < 0) != (rest < 0)), quotient - 1, quotient)
    down = jnp.floor(quotient)
    down = where(quotient - down > 0.5, down + 1, down)
    down = where(quotient == 0, jnp.copysign(zeros_like(x), x / y), down)
    return where(y == 0, x / y, down).astype(x.dtype)


@of_reals("quotient")
def truncated(x: Any, y: Any) -> Any:
    """The quotient rounded towards 0."""
    return jnp.trunc(x / y)


@of_reals("fraction")
def fraction(x: Any) -> Any:
    """What is left without the integer part."""
    return x - jnp.trunc(x)


@of_reals("copysign")
def signed(x: Any, y: Any) -> Any:
    """The magnitude of x with the sign of y."""
    return jnp.copysign(x, y).astype(x.dtype)


@of_reals("angle")
def angle(x: Any) -> Any:
    """The angle of a real number to the positive real axis."""
    return where(x != x, x, where(x < 0, math.pi, 0)).astype(x.dtype)
