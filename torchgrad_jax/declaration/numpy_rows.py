"""Softmax along a dimension and standardization of rows: their forms on NumPy arrays. See `numpy_forms.py`.

They call what the plans of their jaxprs call, and are made of the same steps, so that an operand of new sizes is not traced, which takes 0.3 ms and
more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.blocks import SINGLE
from torchgrad_jax.runtime.baseline.carrying import ROWS, Loop
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.loops import LAYER, are_for_rows, how_of_rows
from torchgrad_jax.runtime.compiling import foreign
from torchgrad_jax.runtime.native import handlers
from torchgrad_jax.runtime.operation import stand_in

# What an element takes, in nanoseconds.
_ELEMENT = 0.8


def is_for_rows(*arrays: Array | None) -> bool:
    """Whether the loop is there, and is for such arrays, None among them for those that are missing."""
    return are_for_rows(*arrays) and foreign.knows(foreign.ROWS)


def carried_out(arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]], **how: Any) -> list[Array]:
    """What the loop makes of arrays, of these shapes. See `how_of_rows`."""
    made = [np.empty(shape, np.float32) for shape in shapes]
    handlers.by_rows([contiguous(a) for a in arrays], made, how_of_rows(arrays[0], **how))
    return made


def step(arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]], places: Sequence[int], **how: Any) -> tuple[Any, ...]:
    """The same as a step of a merged program, of the operands at these places."""
    made = Loop(ROWS, how_of_rows(arrays[0], **how), [(shape, SINGLE) for shape in shapes])
    return (made, tuple(places)) if len(shapes) == 1 else (made, tuple(places), len(shapes))


def _how_along(of: int, shape: tuple[int, ...], dim: int) -> dict[str, Any]:
    return {"of": of, "length": shape[dim], "eps": 0.0, "parameters": 0, "inner": math.prod(shape[dim % len(shape) + 1 :])}


def _along(of: int, dim: int, arrays: Sequence[Array]) -> Array:
    return carried_out(arrays, [arrays[0].shape], **_how_along(of, arrays[0].shape, dim))[0]


def _steps_along(of: int, dim: int, arrays: Sequence[Array]) -> Any:
    return [step(arrays, [arrays[0].shape], range(len(arrays)), **_how_along(of, arrays[0].shape, dim))]


def along(of: int, last: bool = False) -> Forms:
    """What `loops` does along a dimension to an array. last: only if it is the last one."""

    def result(x: Array, dim: int) -> Array | None:
        return x if x.ndim and is_for_rows(x) and (not last or dim in (-1, x.ndim - 1)) else None

    return Forms(lambda x, dim: _along(of, dim, [x]), result, True, each=_ELEMENT, steps=lambda x, dim: _steps_along(of, dim, [x]))


def along_vjp(of: int) -> Forms:
    """The gradient of that, of the result's gradient and the result."""

    def result(grad: Array, aval: Any, made: Array, dim: int) -> Array | None:
        return stand_in(aval.shape, np.dtype(np.float32)) if grad.ndim and is_for_rows(grad, made) else None

    def steps(grad: Array, aval: Any, made: Array, dim: int) -> Any:
        return _steps_along(of, dim, [grad, made])

    return Forms(lambda grad, aval, made, dim: _along(of, dim, [grad, made]), result, True, each=_ELEMENT, steps=steps)


def _statistics(shape: tuple[int, ...], normalized_shape: tuple[int, ...]) -> tuple[int, ...]:
    count = len(normalized_shape)
    return (*shape[: len(shape) - count], *(1,) * count)


def _layer(of: Any, x: Array, weight: Array | None, bias: Array | None, normalized_shape: tuple[int, ...], eps: float) -> Any:
    given = [a for a in (x, weight, bias) if a is not None]
    shapes = [x.shape, *[_statistics(x.shape, normalized_shape)] * 2]
    how = {"of": LAYER, "length": math.prod(normalized_shape), "eps": float(eps), "parameters": (0, 1, 3)[len(given) - 1], "inner": 1}
    return of(given, shapes, **how)


def _layer_norm(*arrays: Any, **how: Any) -> tuple[Array, ...]:
    return tuple(_layer(carried_out, *arrays, **how))


def _layer_norm_steps(*arrays: Any, **how: Any) -> Any:
    return [_layer(lambda given, shapes, **told: step(given, shapes, range(len(given)), **told), *arrays, **how)]


def _layer_norm_results(x: Array, weight: Array | None, bias: Array | None, normalized_shape: tuple[int, ...], eps: float) -> Any:
    if not is_for_rows(x, weight, bias) or (weight is None and bias is not None):
        return None
    statistics = stand_in(_statistics(x.shape, normalized_shape), x.dtype)
    return x, statistics, statistics


layer_norm = Forms(_layer_norm, _layer_norm_results, each=_ELEMENT, steps=_layer_norm_steps)
