"""`make_tensor`: tensors of random numbers for tests."""

from __future__ import annotations

import math
import warnings
from typing import Any

import ml_dtypes
import numpy as np

from torchgrad_jax.core.order import lay_out_as
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import checked_sizes
from torchgrad_jax.functions.random import default_generator, drawn, uniform_between

EQUAL_BOUNDS = (
    "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated since 2.1 and will be removed in 2.3. "
    "Use `torch.full(...)` instead."
)


def make_tensor(
    *shape: Any,
    dtype: dtypes.dtype,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of uniform numbers of [low, high), PyTorch's for the same seed of the default generator.

    shape: integers, or one sequence of them. low, high: moved into the dtype's range; by default 0 and 2 for bool, 0 and 10 for uint8, -9 and
    10 for signed integers, -9 and 9 for floating and complex dtypes, of which both parts are drawn. noncontiguous: every second element of a
    larger tensor (if there are two elements or more). exclude_zero: zeros become 1, or the smallest normal number of a floating dtype.

    ValueError where ``low >= high``, for NaN bounds, for an interval outside the dtype's range, for `requires_grad` of an integral dtype and
    for both `noncontiguous` and `memory_format`. TypeError for a dtype that is none, NotImplementedError for a `memory_format`, of which
    there is one.
    """
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"noncontiguous={noncontiguous} and memory_format={memory_format}"
        )
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"The requested dtype '{dtype}' is not supported by torch.testing.make_tensor().")
    if requires_grad and not dtypes.is_float(dtype.np):
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype}")
    low, high = _bounds(dtype, low, high)
    size = checked_sizes(shape, "empty")
    apart = noncontiguous and math.prod(size) > 1
    array = _numbers((*size[:-1], 2 * size[-1]) if apart else size, dtype.np, low, high)
    if exclude_zero:
        array[array == 0] = _smallest(dtype.np)
    made = lay_out_as(drawn(array, device), memory_format)
    return (made[..., 1::2].detach() if apart else made).requires_grad_(requires_grad)


def _bounds(dtype: dtypes.dtype, low: Any, high: Any) -> tuple[Any, Any]:
    """The interval, inside the range of the dtype."""
    kind = dtype.np.kind
    lowest, highest, usual_low, usual_high = _range(dtype.np)
    low, high = usual_low if low is None else low, usual_high if high is None else high
    if any(isinstance(x, float) and math.isnan(x) for x in (low, high)):
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={low} and high={high}")
    if low == high and dtypes.is_float(dtype.np):
        warnings.warn(EQUAL_BOUNDS, FutureWarning, stacklevel=3)
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < lowest or low >= highest:
        raise ValueError(f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports [{lowest}, {highest})")
    low, high = max(low, lowest), min(high, highest)
    return (math.ceil(low), math.ceil(high)) if kind in "biu" else (low, high)


def _range(dtype: np.dtype) -> tuple[Any, Any, int, int]:
    """The least number of a dtype, what all its numbers are below of, and the interval that is drawn from by default."""
    if dtype.kind == "b":
        return 0, 2, 0, 2
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        top = int(info.max)
        return int(info.min), top if dtype.itemsize == 8 else top + 1, 0 if dtype.kind == "u" else -9, 10
    top = float(ml_dtypes.finfo(_part(dtype)).max)
    return -top, top, -9, 9


def _part(dtype: np.dtype) -> np.dtype:
    return np.real(np.empty(0, dtype)).dtype


def _numbers(shape: tuple[int, ...], dtype: np.dtype, low: Any, high: Any) -> np.ndarray:
    if not dtypes.is_float(dtype):
        return default_generator.random(shape, dtype, low, high)
    if high - low > float(ml_dtypes.finfo(_part(dtype)).max):  # the distance itself cannot be represented
        scale = max(-low, high) if _part(dtype).itemsize == 8 else 2.0  # as PyTorch rounds
        return uniform_between(shape, dtype, low / scale, high / scale) * np.asarray(scale, _part(dtype))
    return uniform_between(shape, dtype, low, high)


def _smallest(dtype: np.dtype) -> Any:
    if not dtypes.is_float(dtype):
        return 1
    tiny = float(ml_dtypes.finfo(_part(dtype)).tiny)
    return complex(tiny, tiny) if dtype.kind == "c" else tiny
