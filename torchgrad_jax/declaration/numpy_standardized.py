"""Variances, and normalization by them: forms on NumPy arrays of what `operators/reduction.py` and `normalization.py` say. See `numpy_forms.py`.

They call what the plans of their jaxprs call, in the same order: each layer of a network is of another size, and its traces take 0.5 to 2.5 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array, Shape
from torchgrad_jax.declaration.numpy_rows import carried_out, is_for_rows, step
from torchgrad_jax.runtime.baseline import Forms, loops
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.reducing import summing
from torchgrad_jax.runtime.compiling.foreign import ALONG, knows
from torchgrad_jax.runtime.native import handlers
from torchgrad_jax.runtime.operation import stand_in

# What an element takes, in nanoseconds; and channels of fewer elements to a sample are no rows.
_ELEMENT, LEAST_SPACE = 2.0, 16


def _is_one_dtype(*arrays: Array | None) -> bool:
    return arrays[0] is not None and arrays[0].dtype.char in "fd" and all([a is None or a.dtype == arrays[0].dtype for a in arrays])


def _mean(x: Array, dims: Shape) -> Array:
    count = math.prod([x.shape[d] for d in dims])
    return np.expand_dims(summing(dims, x.dtype)(x) * x.dtype.type(1 / count), dims)


def _rsqrt(x: Array) -> Array:
    return np.true_divide(np.ones((), x.dtype), np.sqrt(x))


def _standardized(x: Array, dims: Shape, eps: float) -> tuple[Array, Array, Array, Array]:
    """(x - mean) / deviation, with mean, reciprocal deviation and biased variance of `dims`."""
    mean = _mean(x, dims)
    centred = x - mean
    variance = _mean(centred * centred, dims)
    rstd = _rsqrt(variance + x.dtype.type(eps))
    return centred * rstd, mean, rstd, variance


def _standardized_grad(g: Array, xhat: Array, rstd: Array, dims: Shape) -> Array:
    number = g.dtype.type
    count = number(math.prod([g.shape[d] for d in dims]))
    zero = np.zeros_like(rstd)  # the gradients of mean and deviation, which may meet what is not finite
    first = _mean(g, dims) - zero / (np.where(rstd == 0, number(1), rstd) * count)
    second = _mean(g * xhat, dims) + zero * rstd / count
    return rstd * (g - first - xhat * second)


def _selected(found: dict[str, Array], names: Sequence[str]) -> Any:
    return found[names[0]] if len(names) == 1 else tuple([found[name] for name in names])


def _of_avals(avals: Sequence[Any], names: Sequence[str]) -> Any:
    like = [stand_in(aval.shape, aval.dtype) for aval in avals]
    return like[0] if len(names) == 1 else tuple(like)


# ---------------------------------------------------------------------- variance and deviation


def _reduced(shape: Shape, dim: Any) -> Shape:
    """The dimensions that are reduced, in order; all where none are named."""
    dims = range(len(shape)) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
    return tuple(sorted([d % len(shape) for d in dims]))


def _centred(x: Array, dims: Shape) -> Array:
    count = math.prod([x.shape[d] for d in dims])
    return x - np.expand_dims(np.divide(summing(dims, x.dtype)(x), x.dtype.type(count)), dims)


def _variance(x: Array, dim: Any, correction: float | None, keepdim: bool) -> Array:
    dims = _reduced(x.shape, dim)
    off = _centred(x, dims)
    free = math.prod([x.shape[d] for d in dims]) - (1 if correction is None else correction)
    found = np.asarray(np.divide(summing(dims, x.dtype)(off * off), x.dtype.type(max(free, 0.0))))
    return np.expand_dims(found, dims) if keepdim else found


def _deviation(x: Array, dim: Any, correction: float | None, keepdim: bool) -> Array:
    return np.asarray(np.sqrt(_variance(x, dim, correction, keepdim)))


def _variance_grad(grad: Array, aval: Any, x: Array, dim: Any, correction: float | None, keepdim: bool) -> Array:
    dims = _reduced(x.shape, dim)
    free = math.prod([x.shape[d] for d in dims]) - (1 if correction is None else correction)
    return x.dtype.type(2.0 / free if free else math.inf) * (grad if keepdim else np.expand_dims(grad, dims)) * _centred(x, dims)


def _deviation_grad(grad: Array, aval: Any, x: Array, result: Array, dim: Any, correction: float | None, keepdim: bool) -> Array:
    flat, number = result == 0, x.dtype.type
    grad = np.where(flat, number(0), grad / np.where(flat, number(1), number(2) * result))
    return _variance_grad(grad, aval, x, dim, correction, keepdim)


def _of_reduced(x: Array, dim: Any, correction: float | None, keepdim: bool) -> Array | None:
    if x.dtype.char not in "fd" or not x.ndim or not x.size:
        return None
    dims = _reduced(x.shape, dim)
    return stand_in(tuple([1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]), x.dtype)


def _of_aval_alike(grad: Array, aval: Any, x: Array, *rest: Array, **_: Any) -> Array | None:
    alike = x.dtype.char in "fd" and all([a.dtype == x.dtype for a in (grad, *rest)])
    return stand_in(aval.shape, aval.dtype) if alike and x.ndim and x.size else None


_COSTS: dict[str, Any] = {"each": 0.15, "fused": lambda x, *_: 0.3 * x.size, "planned": True}
_COSTS_BACK: dict[str, Any] = {"each": 0.15, "fused": lambda grad, x, *_: 0.3 * x.size, "planned": True}
variance = Forms(_variance, _of_reduced, **_COSTS)
variance_vjp = Forms(_variance_grad, _of_aval_alike, **_COSTS_BACK)
deviation = Forms(_deviation, _of_reduced, **_COSTS)
deviation_vjp = Forms(_deviation_grad, _of_aval_alike, **_COSTS_BACK)


# ---------------------------------------------------------------------- over the last dimensions


def layer_norm_grads(names: tuple[str, ...]) -> Forms:
    """The form of the gradients of these operands. Saved are the weight, the bias, and the statistics: a bias alone could be taken for a weight."""

    def function(grad: Array, avals: Any, x: Array, *rest: Array, normalized_shape: Shape, **_: Any) -> Any:
        weight, (mean, rstd), length = rest[:-2][:1], rest[-2:], math.prod(normalized_shape)
        how: dict[str, Any] = {"length": length, "eps": 0.0, "inner": 1}
        found = {"bias": grad}
        if "input" in names:
            (found["input"],) = carried_out([grad, x, mean, rstd, *weight], [x.shape], of=loops.LAYER_GRAD, parameters=len(weight), **how)
        if "weight" in names:
            (made,) = carried_out([grad, x, mean, rstd], [(length,)], of=loops.LAYER_WEIGHT, parameters=0, **how)
            found["weight"] = made.reshape(normalized_shape)
        if "bias" in names:
            dims = tuple(range(grad.ndim - len(normalized_shape)))
            found["bias"] = summing(dims, grad.dtype)(grad) if dims else grad
        return _selected(found, names)

    def result(grad: Array, avals: Any, x: Array, *rest: Array, **_: Any) -> Any:
        told_apart = len(rest) != 3 or "weight" in names
        return _of_avals(avals, names) if told_apart and is_for_rows(grad, x, *rest) else None

    def steps(grad: Array, avals: Any, x: Array, *rest: Array, normalized_shape: Shape, **_: Any) -> Any:
        given, statistics, dims = [grad, x], [len(rest), len(rest) + 1], tuple(range(grad.ndim - len(normalized_shape)))
        how: dict[str, Any] = {"length": math.prod(normalized_shape), "eps": 0.0, "inner": 1}
        weights = [2] if len(rest) > 2 else []
        if len(normalized_shape) > 1 or not dims:
            return None
        found = {
            "input": step(given, [x.shape], [0, 1, *statistics, *weights], of=loops.LAYER_GRAD, parameters=len(weights), **how),
            "weight": step(given, [normalized_shape], [0, 1, *statistics], of=loops.LAYER_WEIGHT, parameters=0, **how),
            "bias": (summing(dims, grad.dtype), (0,)),
        }
        return [found[name] for name in names]

    return Forms(function, result, each=_ELEMENT, steps=steps)


# ---------------------------------------------------------------------- over groups of channels


def _of_channels(p: Array, ndim: int) -> Array:
    return p.reshape(p.shape + (1,) * (ndim - 2))


def _by_groups(name: str, arrays: Sequence[Array], shapes: Sequence[Shape], groups: int, eps: float) -> list[Array]:
    made = [np.empty(shape, arrays[0].dtype) for shape in shapes]
    handlers.loop([contiguous(a) for a in arrays], made, loops.how_of_groups(name, arrays[0], groups=groups, eps=eps))
    return made


def _groups_are_for_loops(*arrays: Array | None) -> bool:
    x = arrays[0]
    return x is not None and math.prod(x.shape[2:]) >= LEAST_SPACE and knows(ALONG) and all([a is None or a.size > 0 for a in arrays])


def _group_norm(x: Array, weight: Array | None, bias: Array | None, group: int, eps: float) -> tuple[Array, ...]:
    statistics, channels = (x.shape[0], group), x.shape[1:2]
    if _groups_are_for_loops(x, weight, bias):
        given = [np.ones(channels, x.dtype) if weight is None else weight, np.zeros(channels, x.dtype) if bias is None else bias]
        return tuple(_by_groups("group", [x, *given], [x.shape, statistics, statistics], group, eps))
    y, mean, rstd, _ = _standardized(x.reshape(x.shape[0], group, -1), (2,), eps)
    y = y.reshape(x.shape)
    y = y if weight is None else y * _of_channels(weight, x.ndim)
    return y if bias is None else y + _of_channels(bias, x.ndim), mean[..., 0], rstd[..., 0]


def _group_norm_results(x: Array, weight: Array | None, bias: Array | None, group: int, eps: float) -> Any:
    if not _is_one_dtype(x, weight, bias) or not x.size or x.ndim < 2:
        return None
    statistics = stand_in((x.shape[0], group), x.dtype)
    return x, statistics, statistics


def group_norm_grads(names: tuple[str, ...]) -> Forms:
    """The form of the gradients of these operands."""

    def function(grad: Array, avals: Any, x: Array, *rest: Array, group: int, **_: Any) -> Any:
        weight, (mean, rstd) = rest[0] if len(rest) == 3 else None, rest[-2:]
        if _groups_are_for_loops(grad, x, mean, rstd, weight):
            arrays = [grad, x, mean, rstd, np.ones(x.shape[1:2], x.dtype) if weight is None else weight]
            found = _by_groups("group_grad", arrays, [x.shape, x.shape[:2], x.shape[:2]], group, 0.0)
            found = [found[0], *[summing((0,), x.dtype)(part) for part in found[1:]]]
        else:
            g = (grad if weight is None else grad * _of_channels(weight, grad.ndim)).reshape(x.shape[0], group, -1)
            xhat, channels = (x.reshape(g.shape) - mean[..., None]) * rstd[..., None], (0, *range(2, x.ndim))
            of_input = _standardized_grad(g, xhat, rstd[..., None], (2,)).reshape(x.shape)
            found = [of_input, *[summing(channels, x.dtype)(part) for part in (grad * xhat.reshape(x.shape), grad)]]
        return _selected(dict(zip(("input", "weight", "bias"), found, strict=True)), names)

    def result(grad: Array, avals: Any, *saved: Array, **_: Any) -> Any:
        return _of_avals(avals, names) if _is_one_dtype(grad, *saved) and grad.size else None

    return Forms(function, result, each=_ELEMENT, planned=True)


# ---------------------------------------------------------------------- over the batch


def _channel_stats(p: Array, ndim: int) -> Array:
    return p.reshape((1, p.shape[0]) + (1,) * (ndim - 2))


def _not_channels(ndim: int) -> Shape:
    return (0, *range(2, ndim))


def _have_rows(*arrays: Array | None) -> bool:
    x = arrays[0]
    return x is not None and math.prod(x.shape[2:]) >= LEAST_SPACE and is_for_rows(*arrays)


def _how_of_channels(x: Array) -> dict[str, Any]:
    return {"length": math.prod(x.shape[2:]), "inner": x.shape[1], "eps": 0.0, "parameters": 0}


def _batch_norm(
    x: Array, weight: Array | None, bias: Array | None, running_mean: Array | None, running_var: Array | None, momentum: Any, eps: float
) -> tuple[Array, ...]:  # fmt: skip
    dims, how, channels, number = _not_channels(x.ndim), _how_of_channels(x), x.shape[1:2], x.dtype.type
    if _have_rows(x, weight, bias):
        mean, variance = carried_out([x], [channels] * 2, of=loops.MOMENTS, **how)
        rstd = _rsqrt(variance + number(eps))
        given = [np.ones(channels, x.dtype) if weight is None else weight, np.zeros(channels, x.dtype) if bias is None else bias]
        (y,) = carried_out([x, mean, rstd, *given], [x.shape], of=loops.CHANNELS, **how)
    else:
        y, mean, rstd, variance = _standardized(x, dims, eps)
        y = y if weight is None else y * _of_channels(weight, x.ndim)
        y = y if bias is None else y + _of_channels(bias, x.ndim)
        mean, rstd, variance = [s.reshape(channels) for s in (mean, rstd, variance)]
    count = x.size // x.shape[1]
    unbiased, step = variance * number(count / (count - 1) if count > 1 else math.nan), number(momentum)
    moved = [old * (number(1) - step) + new * step for old, new in ((running_mean, mean), (running_var, unbiased)) if old is not None]
    return y, mean, rstd, *moved


def _batch_norm_results(
    x: Array, weight: Array | None, bias: Array | None, running_mean: Array | None, running_var: Array | None, momentum: Any, eps: float
) -> Any:  # fmt: skip
    if not _is_one_dtype(x, weight, bias, running_mean, running_var) or not x.size or x.ndim < 2:
        return None
    statistics = [a for a in (running_mean, running_var) if a is not None]
    of_channels = stand_in(x.shape[1:2], x.dtype)
    return x, of_channels, of_channels, *statistics


def batch_norm_grads(names: tuple[str, ...]) -> Forms:
    """The form of the gradients of these operands."""

    def function(grad: Array, avals: Any, x: Array, *rest: Array, **_: Any) -> Any:
        weight, (mean, rstd) = rest[0] if len(rest) == 3 else None, rest[-2:]
        if _have_rows(grad, x, mean, rstd, weight):
            arrays = [grad, x, mean, rstd, np.ones(x.shape[1:2], x.dtype) if weight is None else weight]
            found = carried_out(arrays, [x.shape, x.shape[1:2], x.shape[1:2]], of=loops.CHANNELS_GRAD, **_how_of_channels(x))
        else:
            dims, deviation = _not_channels(x.ndim), _channel_stats(rstd, x.ndim)
            xhat = (x - _channel_stats(mean, x.ndim)) * deviation
            g = grad if weight is None else grad * _of_channels(weight, x.ndim)
            found = [_standardized_grad(g, xhat, deviation, dims), *[summing(dims, x.dtype)(each) for each in (grad * xhat, grad)]]
        return _selected(dict(zip(("input", "weight", "bias"), found, strict=True)), names)

    def result(grad: Array, avals: Any, *saved: Array, **_: Any) -> Any:
        return _of_avals(avals, names) if _is_one_dtype(grad, *saved) and grad.size else None

    return Forms(function, result, each=_ELEMENT, planned=True)


group_norm = Forms(_group_norm, _group_norm_results, each=_ELEMENT, planned=True)
batch_norm = Forms(_batch_norm, _batch_norm_results, each=_ELEMENT, planned=True)
