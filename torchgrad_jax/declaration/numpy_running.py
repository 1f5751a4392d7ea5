"""Sums and products of all that is up to an element, and places of extremes: their forms on NumPy arrays. See `numpy_forms.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array, converted
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.loops import along
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


def _by_loop(fold: np.ufunc, x: Array, dim: int, reverse: bool = False) -> Array | None:
    name = "running_sum" if fold is np.add else "running_product"
    return along(name, x, dim=dim, length=x.shape[dim], told=(int(reverse),), shape=x.shape)


def _sums_behind(grad: Array, aval: Aval, dim: int, dtype: Any) -> Array:
    if (found := _by_loop(np.add, grad, dim, True)) is not None:
        return converted(found, aval.dtype)
    back = (*(slice(None),) * (dim % grad.ndim), slice(None, None, -1))
    return converted(_folded(np.add, grad[back], dim, grad.dtype)[back], aval.dtype)


def _sums_behind_result(grad: Array, aval: Aval, dim: int, dtype: Any) -> Array | None:
    return stand_in(grad.shape, aval.dtype) if grad.size and grad.ndim and -grad.ndim <= dim < grad.ndim else None


def _of(fold: np.ufunc, result: Any) -> Forms:
    def running(x: Array, dim: int, dtype: Any) -> Array:
        target = _target(x, dtype)
        given = converted(x, target)
        found = _by_loop(fold, given, dim)
        return _folded(fold, given, dim, target) if found is None else found

    return Forms(running, result)


def _product_result(x: Array, dim: int, dtype: Any) -> Array | None:
    """Not for complex numbers: 1 times one that is not finite may be another."""
    return None if _target(x, dtype).kind == "c" else _result(x, dim, dtype)


cumsum, cumprod = _of(np.add, _result), _of(np.multiply, _product_result)
cumsum_vjp = Forms(_sums_behind, _sums_behind_result)


# ---------------------------------------------------------------------- places


def _place_result(x: Array, dim: int | None, keepdim: bool) -> Array | None:
    """Not where it is refused, nor of half precision, whose elements NumPy compares one by one."""
    if x.dtype.char not in "fdbhilqB" or not x.size or not (dim is None or -x.ndim <= dim < x.ndim or dim in (0, -1)):
        return None
    own = range(x.ndim) if dim is None else (dim % x.ndim,) if x.ndim else ()
    return stand_in(tuple([1 if d in own else n for d, n in enumerate(x.shape) if keepdim or d not in own]), np.dtype(np.int64))


# `each`: over a dimension that others follow NumPy goes element by element.
argmax = Forms(lambda x, dim, keepdim: x.argmax(dim if x.ndim else None, keepdims=keepdim), _place_result, each=0.5)
argmin = Forms(lambda x, dim, keepdim: x.argmin(dim if x.ndim else None, keepdims=keepdim), _place_result, each=0.5)
