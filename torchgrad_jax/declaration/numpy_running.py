"""Sums and products of all that is up to an element, and places of extremes: their forms on NumPy arrays. See `numpy_forms.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from operator import methodcaller
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array, Shape, converted
from torchgrad_jax.declaration.numpy_placing import gradient, without
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.carrying import ALONG, Loop
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.loops import AT_PLACE, LOOPS, MEDIAN, MEDIAN_OF_NUMBERS, along, how_along
from torchgrad_jax.runtime.native import handlers
from torchgrad_jax.runtime.operation import stand_in
from torchgrad_jax.runtime.value import Aval

# From so many factors on the product of the others is taken in two levels: the root as many steps.
LONG = 64
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


def _step(name: str, x: Array, dim: int, told: Shape, *results: tuple[Shape, Any]) -> Any:
    """A loop as the one step of a merged program. results: their shapes and dtypes."""
    how = how_along(name, x, dim=dim % x.ndim - x.ndim, length=x.shape[dim], told=told)
    return [(Loop(ALONG, how, [(shape, np.dtype(dtype)) for shape, dtype in results]), (0,), len(results))]


def _of(fold: np.ufunc, result: Any) -> Forms:
    name = "running_sum" if fold is np.add else "running_product"

    def steps(x: Array, dim: int, dtype: Any) -> Any:
        return _step(name, x, dim, (0,), (x.shape, x.dtype)) if _target(x, dtype) == x.dtype and _is_for_loops(x, dim=dim) else None

    def running(x: Array, dim: int, dtype: Any) -> Array:
        target = _target(x, dtype)
        given = converted(x, target)
        found = _by_loop(fold, given, dim)
        return _folded(fold, given, dim, target) if found is None else found

    return Forms(running, result, True, steps=steps)


def _product_result(x: Array, dim: int, dtype: Any) -> Array | None:
    """Not for complex numbers: 1 times one that is not finite may be another."""
    return None if _target(x, dtype).kind == "c" else _result(x, dim, dtype)


cumsum, cumprod = _of(np.add, _result), _of(np.multiply, _product_result)
cumsum_vjp = Forms(_sums_behind, _sums_behind_result)


# ---------------------------------------------------------------------- what loops of C's alone are for


@cache
def _has_loops() -> bool:
    return _by_loop(np.add, np.ones(1), 0) is not None


def _is_for_loops(*arrays: Any, dim: int) -> bool:
    x = arrays[0]
    alike = x.dtype.char in "fd" and x.size and all([a.dtype == x.dtype and a.shape == x.shape for a in arrays])
    return bool(alike and x.ndim and -x.ndim <= dim < x.ndim and _has_loops())


def _with_places(name: str, x: Array, dim: int, told: Shape, shape: Shape) -> tuple[Array, Array]:
    """What a loop finds of `x`, and its places."""
    found = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    handlers.loop([contiguous(x)], found, how_along(name, x, dim=dim - x.ndim, length=x.shape[dim], told=told))
    return found


def _running_extreme(name: str) -> Forms:
    def result(x: Array, dim: int) -> tuple[Array, Array] | None:
        return (stand_in(x.shape, x.dtype), stand_in(x.shape, np.dtype(np.int64))) if _is_for_loops(x, dim=dim) else None

    def steps(x: Array, dim: int) -> Any:
        return _step(name, x, dim, (0,), (x.shape, x.dtype), (x.shape, np.int64))

    return Forms(lambda x, dim: _with_places(name, x, dim % x.ndim, (0,), x.shape), result, True, each=LOOPS[name], steps=steps)


def _selected(which: int, position: Callable[[Any], int]) -> Forms:
    """One element of the order along a dimension, and its place. position: from the operator's `k`."""

    def selected(x: Array, dim: int, keepdim: bool, k: Any = None) -> tuple[Array, ...]:
        dim %= x.ndim
        found = _with_places("select_along", x, dim, (which, position(k)), without(x.shape, dim, True))
        return found if keepdim else tuple([a.squeeze(dim) for a in found])

    def result(x: Array, dim: int, keepdim: bool, k: Any = None) -> tuple[Array, ...] | None:
        if not _is_for_loops(x, dim=dim) or (k is not None and not 1 <= k <= x.shape[dim]):
            return None
        shape = without(x.shape, dim % x.ndim, keepdim)
        return stand_in(shape, x.dtype), stand_in(shape, np.dtype(np.int64))

    def steps(x: Array, dim: int, keepdim: bool, k: Any = None) -> Any:
        shape = without(x.shape, dim % x.ndim, keepdim)
        return _step("select_along", x, dim, (which, position(k)), (shape, x.dtype), (shape, np.int64))

    return Forms(selected, result, True, each=LOOPS["select_along"], steps=steps)


def _first(name: str) -> Forms:
    """The first extreme along a dimension, and its place."""

    def first(x: Array, dim: int, keepdim: bool) -> tuple[Array, ...]:
        dim %= x.ndim
        found = _with_places(name, x, dim, (), without(x.shape, dim, True))
        return found if keepdim else tuple([a.reshape(without(x.shape, dim, False)) for a in found])

    def result(x: Array, dim: int, keepdim: bool) -> tuple[Array, ...] | None:
        if not _is_for_loops(x, dim=dim):
            return None
        shape = without(x.shape, dim % x.ndim, keepdim)
        return stand_in(shape, x.dtype), stand_in(shape, np.dtype(np.int64))

    def steps(x: Array, dim: int, keepdim: bool) -> Any:
        shape = without(x.shape, dim % x.ndim, keepdim)
        return _step(name, x, dim, (), (shape, x.dtype), (shape, np.int64))

    return Forms(first, result, True, each=LOOPS[name], steps=steps)


def _gradient(name: str) -> Callable[[tuple[str, ...]], Forms]:
    def made(grad: Array, aval: Aval, *saved: Array, dim: int, **_: Any) -> Array:
        return along(name, grad, *saved, dim=dim, length=grad.shape[dim], told=(0,), shape=grad.shape)

    return gradient(made, lambda grad, aval, *saved, dim, **_: _is_for_loops(grad, *saved, dim=dim) and len(saved) == 2, LOOPS[name])


logcumsumexp = Forms(
    lambda x, dim: along("running_log_sum", x, dim=dim, length=x.shape[dim], told=(0,), shape=x.shape),
    lambda x, dim: stand_in(x.shape, x.dtype) if _is_for_loops(x, dim=dim) else None, True,
    steps=lambda x, dim: _step("running_log_sum", x, dim, (0,), (x.shape, x.dtype)),
    each=LOOPS["running_log_sum"],
)  # fmt: skip
cumprod_grads, logcumsumexp_grads = _gradient("running_product_grad"), _gradient("running_log_sum_grad")
cummax, cummin = _running_extreme("running_max"), _running_extreme("running_min")
max_dim, min_dim = _first("first_max"), _first("first_min")
kthvalue = _selected(AT_PLACE, lambda k: k - 1)
median, nanmedian = _selected(MEDIAN, lambda k: 0), _selected(MEDIAN_OF_NUMBERS, lambda k: 0)


def _of_all(form: Forms) -> Forms:
    """One element of the order of all."""

    def result(x: Array) -> Array | None:
        found = None if form.result is None else form.result(x.reshape(-1), 0, False)
        return None if found is None else found[0]

    return Forms(lambda x: np.asarray(form.function(x.reshape(-1), 0, False)[0]), result, True, each=form.each, planned=True)


def _shared(grad: Array, aval: Aval, x: Array, result: Array) -> Array:
    """The gradient of an element of all, which those that equal it share."""
    mask = (x == result) | ((x != x) & (result != result))
    return np.where(mask, grad / grad.dtype.type(np.count_nonzero(mask)), grad.dtype.type(0))


median_of_all, nanmedian_of_all = _of_all(median), _of_all(nanmedian)
shared_grads = gradient(_shared, lambda grad, aval, x, result: grad.dtype.char in "fd" and x.size > 0 and x.dtype == result.dtype == grad.dtype)


# ---------------------------------------------------------------------- products


def _others(x: Array) -> Array:
    """For each element the product of the others along the last dimension, in two levels where these are many."""
    count = x.shape[-1]
    if count < LONG:
        found = np.ones((2, *x.shape), x.dtype)
        found[0, ..., 1:] = cumprod.function(x[..., :-1], -1, None) if count > 1 else 1
        found[1, ..., :-1] = cumprod.function(x[..., :0:-1], -1, None)[..., ::-1] if count > 1 else 1
        return found[0] * found[1]
    columns = math.isqrt(count - 1) + 1
    rows = -(-count // columns)
    table = np.ones((*x.shape[:-1], rows * columns), x.dtype)
    table[..., :count] = x
    table = table.reshape(*x.shape[:-1], rows, columns)
    found = _others(table) * _others(np.multiply.reduce(table, -1))[..., None]
    return found.reshape(*x.shape[:-1], rows * columns)[..., :count]


def _product_grad(grad: Array, aval: Aval, x: Array, result: Array, dim: int | None = None, keepdim: bool = False, **_: Any) -> Array:
    if dim is not None and not keepdim:
        grad, result = np.expand_dims(grad, dim), np.expand_dims(result, dim)
    if x.all():
        return grad * (result / x)
    moved = x.reshape(-1) if dim is None else np.moveaxis(x, dim, -1)
    others = _others(moved)
    return grad * (others.reshape(x.shape) if dim is None else np.moveaxis(others, -1, dim))


def _product_grad_fits(grad: Array, aval: Aval, x: Array, result: Array, dim: int | None = None, **_: Any) -> bool:
    """Not of nothing, nor of a number."""
    return grad.dtype.char in "fd" and x.size > 0 and x.ndim > 0 and (dim is None or -x.ndim <= dim < x.ndim)


prod_grads = gradient(_product_grad, _product_grad_fits)


# ---------------------------------------------------------------------- places


def _place_result(x: Array, dim: int | None, keepdim: bool) -> Array | None:
    """Not where it is refused, nor of half precision, whose elements NumPy compares one by one."""
    if x.dtype.char not in "fdbhilqB" or not x.size or not (dim is None or -x.ndim <= dim < x.ndim or dim in (0, -1)):
        return None
    own = range(x.ndim) if dim is None else (dim % x.ndim,) if x.ndim else ()
    return stand_in(tuple([1 if d in own else n for d, n in enumerate(x.shape) if keepdim or d not in own]), np.dtype(np.int64))


# The rows that are so short, or columns, NumPy goes through element by element.
_SHORT = 64


def _place(kind: str) -> Forms:
    """The first place of an extreme. each: over a dimension that others follow NumPy goes element by element."""
    by_loop, find = {"max": max_dim, "min": min_dim}[kind], {"max": np.argmax, "min": np.argmin}[kind]

    def is_by_loop(x: Array, dim: int | None) -> bool:
        return dim is not None and _is_for_loops(x, dim=dim) and (x.shape[dim] <= _SHORT or dim % x.ndim < x.ndim - 1)

    def place(x: Array, dim: int | None, keepdim: bool) -> Array:
        return by_loop.function(x, dim, keepdim)[1] if is_by_loop(x, dim) else find(x, dim if x.ndim else None, keepdims=keepdim)

    def steps(x: Array, dim: int | None, keepdim: bool) -> Any:
        if is_by_loop(x, dim):
            return by_loop.steps and by_loop.steps(x, dim, keepdim)
        return [(methodcaller(find.__name__, dim if x.ndim else None, keepdims=keepdim), (0,))]

    return Forms(place, _place_result, each=0.5, steps=steps)


argmax, argmin = _place("max"), _place("min")


# ---------------------------------------------------------------------- powers


# So many powers are made one by one.
_FEW_POWERS = 32


def _powers(x: Array, count: int, increasing: bool) -> Array:
    """The powers 0, 1 ... of each element, which are multiplied as `cumprod` does."""
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
    found = np.empty((*x.shape, count), dtype)
    into = found if increasing else found[..., ::-1]
    into[..., :1] = 1
    factor = x.astype(ACCUMULATORS.get(dtype.name, dtype), copy=False)
    if count > _FEW_POWERS:
        factors = np.broadcast_to(factor[..., None], (*x.shape, count - 1))
        into[..., 1:] = np.multiply.accumulate(factors, -1)
        return found
    power: Any = factor
    for k in range(1, count):
        power = power * factor if k > 1 else power
        into[..., k] = power
    return found


def _powers_result(x: Array, count: int, increasing: bool) -> Array | None:
    return stand_in((*x.shape, count), x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)) if x.size and x.dtype.char in "fdil" else None


vander = Forms(_powers, _powers_result, True)
