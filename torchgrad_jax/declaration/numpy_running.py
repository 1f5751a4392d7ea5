"""Sums and products of all that is up to an element: their forms on NumPy arrays. See `numpy_forms.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array, converted
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.loops import SUMS_BEFORE, SUMS_BEHIND
from torchgrad_jax.runtime.native.handlers import by_rows
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

# The wider type in which elements of a narrow one are folded, by the name of that.
ACCUMULATORS = {"float16": np.float32, "bfloat16": np.float32, "float32": np.float64, "complex64": np.complex128}


def _target(x: Array, dtype: Any) -> np.dtype:
    return np.dtype(np.dtype(np.int64) if dtype is None and x.dtype.kind in "biu" else dtype or x.dtype)


def _result(x: Array, dim: int, dtype: Any) -> Array | None:
    """Not of booleans, which are refused where the operator is traced."""
    target = _target(x, dtype)
    return stand_in(x.shape, target) if target.kind != "b" and x.size and x.ndim and -x.ndim <= dim < x.ndim else None


def _folded(fold: np.ufunc, x: Array, dim: int, dtype: np.dtype) -> Array:
    found = fold.accumulate(x, dim, np.dtype(ACCUMULATORS.get(dtype.name, dtype)))
    if fold is np.add:
        found += found.dtype.type(0)  # which it began with: no sum is -0
    return found.astype(dtype, copy=False)


def _sums(x: Array, dim: int, of: int) -> Array | None:
    """The running sums of rows by C's loop; None where it is not for them."""
    if x.dtype != np.float32 or dim % x.ndim != x.ndim - 1:
        return None
    found = np.empty(x.shape, np.float32)
    how = np.array([of, x.size // x.shape[-1], x.shape[-1], 0, 0, 1], np.int64)
    return found if by_rows([contiguous(x)], [found], how) else None


def _sums_behind(grad: Array, aval: Aval, dim: int, dtype: Any) -> Array:
    if (found := _sums(grad, dim, SUMS_BEHIND)) is not None:
        return converted(found, aval.dtype)
    back = (*(slice(None),) * (dim % grad.ndim), slice(None, None, -1))
    return converted(_folded(np.add, grad[back], dim, grad.dtype)[back], aval.dtype)


def _sums_behind_result(grad: Array, aval: Aval, dim: int, dtype: Any) -> Array | None:
    return stand_in(grad.shape, aval.dtype) if grad.size and grad.ndim and -grad.ndim <= dim < grad.ndim else None


def _of(fold: np.ufunc, result: Any) -> Forms:
    def running(x: Array, dim: int, dtype: Any) -> Array:
        target = _target(x, dtype)
        given = converted(x, target)
        found = _sums(given, dim, SUMS_BEFORE) if fold is np.add else None
        return _folded(fold, given, dim, target) if found is None else found

    return Forms(running, result)


def _product_result(x: Array, dim: int, dtype: Any) -> Array | None:
    """Not for complex numbers: 1 times one that is not finite may be another."""
    return None if _target(x, dtype).kind == "c" else _result(x, dim, dtype)


cumsum, cumprod = _of(np.add, _result), _of(np.multiply, _product_result)
cumsum_vjp = Forms(_sums_behind, _sums_behind_result)
