"""JAX's loops, as loops wherever they are traced: where functions are traced in place (`jax.disable_jit`), JAX runs a loop turn by turn instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp


def _as_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with jax.disable_jit(False):
            return function(*args, **kwargs)

    return run


scan, map, fori_loop, while_loop = _as_loop(lax.scan), _as_loop(lax.map), _as_loop(lax.fori_loop), _as_loop(lax.while_loop)


@_as_loop
def expm(x: Any, **options: Any) -> Any:
    """The exponential of a matrix, which has a loop within."""
    from jax.scipy import linalg  # 14 ms that importing this package need not take

    return linalg.expm(x, **options)


def squared(x: Any, times: Any, most: int) -> Any:
    """Matrices multiplied with themselves so many times, at most `most`."""

    def turn(x: Any, k: Any) -> Any:
        more = times > k
        return lax.cond(jnp.any(more), lambda x: jnp.where(more, x @ x, x), lambda x: x, x), None

    return scan(turn, x, jnp.arange(most))[0]
