"""Normalization by mean and variance.

Forward gives the mean and the reciprocal deviation beside the result; backward uses them (Ba et al. 2016, Ioffe and Szegedy 2015).
With xhat = (x - mean) * rstd and g the gradient of xhat, the gradient of x is rstd * (g - mean(g) - xhat * mean(g * xhat)); the
gradients of mean and rstd, which only a second derivative has, join the two means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import numpy_forms as forms
from torchgrad_jax.declaration import numpy_rows, numpy_standardized
from torchgrad_jax.declaration.converting import broadcast_to, convert, is_half, rounded, wide, zeros_like
from torchgrad_jax.declaration.memory_order import IMAGE_ALONE
from torchgrad_jax.declaration.operator import Together, op
from torchgrad_jax.operators.activation import floating_only
from torchgrad_jax.operators.kernels import along, rowwise
from torchgrad_jax.runtime.baseline import loops
from torchgrad_jax.runtime.baseline.loops import how_of_groups
from torchgrad_jax.runtime.compiling import primitives
from torchgrad_jax.runtime.compiling.foreign import ALONG

_RESULTS = ("result0", "result1", "result2")
# Channels of fewer elements to a sample are no rows. From so many elements on XLA's own code takes longer than a loop.
_LEAST_SPACE, _LEAST = numpy_standardized.LEAST_SPACE, 1 << 15


def _mean(x: Any, dims: tuple[int, ...]) -> Any:
    """The mean over `dims`, kept with size 1."""
    count = int(np.prod([x.shape[d] for d in dims], dtype=np.int64))
    return lax.expand_dims(lax.reduce_sum(x, dims) * (1 / count if count else float("nan")), dims)


def _standardized(x: Any, dims: tuple[int, ...], eps: float) -> tuple[Any, Any, Any, Any]:
    """(x - mean) / deviation, with mean, reciprocal deviation and biased variance of `dims`."""
    mean = _mean(x, dims)
    centred = x - mean
    variance = _mean(centred * centred, dims)
    rstd = lax.rsqrt(variance + eps)
    return centred * rstd, mean, rstd, variance


def _standardized_grad(g: Any, xhat: Any, rstd: Any, dims: tuple[int, ...], grad_mean: Any, grad_rstd: Any) -> Any:
    count = int(np.prod([g.shape[d] for d in dims], dtype=np.int64)) or 1
    rstd, grad_mean, grad_rstd = wide(rstd), wide(grad_mean), wide(grad_rstd)
    nonzero = lax.select(rstd == 0, jnp.ones_like(rstd), rstd)  # 0 where the variance is infinite: nothing passes, as 0 / 0 would not say
    first = _mean(g, dims) - grad_mean / (nonzero * count)
    second = _mean(g * xhat, dims) + grad_rstd * rstd / count
    return rstd * (g - first - xhat * second)


def _kept(statistics: Sequence[Any], x: Any, *parameters: Any) -> list[Any]:
    """Mean and reciprocal deviation as backward finds them: in half precision where input and parameters are."""
    dtype = next((p.dtype for p in parameters if p is not None and p.dtype != x.dtype), x.dtype)
    return [convert(s, dtype) for s in statistics]


def check_parameter_types(input: Any, *parameters: Any) -> None:
    """Parameters have the input's dtype, or are float32 for an input of half precision. RuntimeError."""
    for p in parameters:
        if p is not None and p.dtype != input.dtype:
            if p.dtype != np.float32:
                raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")
            if input.dtype.itemsize != 2:
                raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")


def _check_parameters(kernel: str) -> Callable[..., None]:
    only = floating_only(kernel)

    def validate(input: Any, *parameters: Any, **statics: Any) -> None:
        if kernel == "batch_norm":
            only(input)
        check_parameter_types(input, *parameters)
        only(input)

    return validate


# ---------------------------------------------------------------------- over the last dimensions


def _last(x: Any, normalized_shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(normalized_shape), x.ndim))


def _layer_norm_grads(
    grad0: Any, grad1: Any, grad2: Any, input: Any, result1: Any, result2: Any, weight: Any, bias: Any, normalized_shape: Any,
) -> dict[str, Any]:  # fmt: skip
    statistics = result1, result2
    if grad0 is None:
        grad0 = zeros_like(input)
    found: dict[str, Any] = {}
    if grad1 is grad2 is None and rowwise.knows(grad0, input, *statistics, weight):
        how = {"length": int(np.prod(normalized_shape, dtype=np.int64)), "parameters": int(weight is not None)}
        parameters = () if weight is None else (weight,)
        found["input"] = rowwise.by_rows(loops.LAYER_GRAD, grad0, input, *statistics, *parameters, **how)[0]
        found["weight"] = rowwise.by_rows(loops.LAYER_WEIGHT, grad0, input, *statistics, **how)[0].reshape(normalized_shape)
    else:
        grad1, grad2 = (zeros_like(s) if grad is None else grad for grad, s in zip((grad1, grad2), statistics, strict=True))
        found["input"] = _said_layer_grad(grad0, input, *statistics, weight, normalized_shape, grad1, grad2)
        found["weight"] = _said_layer_weight(grad0, input, *statistics)
    found["bias"] = wide(grad0)
    return found


def _said_layer_grad(g: Any, x: Any, mean: Any, rstd: Any, weight: Any, shape: tuple[int, ...], grad_mean: Any, grad_rstd: Any) -> Any:
    g = wide(g) if weight is None else wide(g) * wide(weight)
    return _standardized_grad(g, (wide(x) - mean) * rstd, rstd, _last(x, shape), grad_mean, grad_rstd)


def _said_layer_weight(g: Any, x: Any, mean: Any, rstd: Any) -> Any:
    return wide(g) * ((wide(x) - mean) * rstd)


@op("native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps)", method=False, toplevel=False,
    results=_RESULTS, validate=_check_parameters("LayerNormKernelImpl"), shows=("input", "weight", "bias"), numpy=numpy_rows.layer_norm,
    numpy_grads=numpy_standardized.layer_norm_grads,
    grads={name: Together(_layer_norm_grads, name) for name in ("input", "weight", "bias")})  # fmt: skip
def native_layer_norm(x: Any, weight: Any, bias: Any, normalized_shape: tuple[int, ...], eps: float) -> Any:
    """The last dimensions brought to mean 0 and variance 1, scaled and shifted; the mean; the reciprocal deviation."""
    if (weight is not None or bias is None) and rowwise.knows(x, weight, bias):
        given = [a for a in (x, weight, bias) if a is not None]
        length = int(np.prod(normalized_shape, dtype=np.int64))
        return tuple(rowwise.by_rows(loops.LAYER, *given, length=length, eps=eps, parameters=(0, 1, 3)[len(given) - 1]))
    return _said_layer_norm(x, weight, bias, normalized_shape, eps)


def _said_layer_norm(x: Any, weight: Any, bias: Any, normalized_shape: tuple[int, ...], eps: float) -> Any:
    y, mean, rstd, _ = _standardized(wide(x), _last(x, normalized_shape), eps)
    y = y if weight is None else y * wide(weight)
    return (y if bias is None else y + wide(bias)).astype(x.dtype), *_kept((mean, rstd), x, weight, bias)


def _dims_of(shape: tuple[int, ...], length: int) -> tuple[int, ...]:
    """The last dimensions that have so many elements together; of size 1 as many as can be."""
    first = next(i for i in range(len(shape) + 1) if math.prod(shape[i:]) == length)
    return shape[first:]


def _said_of_layers() -> None:
    def kept(shape: tuple[int, ...], length: int) -> tuple[int, ...]:
        return (*shape[: len(shape) - len(_dims_of(shape, length))], *(1,) * len(_dims_of(shape, length)))

    def layer(x: Any, weight: Any = None, bias: Any = None, *, length: int, eps: float, inner: int) -> list[Any]:
        return list(_said_layer_norm(x, weight, bias, _dims_of(x.shape, length), eps))

    def grad(g: Any, x: Any, mean: Any, rstd: Any, weight: Any = None, *, length: int, eps: float, inner: int) -> list[Any]:
        zeros = zeros_like(mean)
        return [_said_layer_grad(g, x, mean, rstd, weight, _dims_of(x.shape, length), zeros, zeros)]

    def of_weight(g: Any, x: Any, mean: Any, rstd: Any, *, length: int, eps: float, inner: int) -> list[Any]:
        return [jnp.sum(_said_layer_weight(g, x, mean, rstd).reshape(-1, length), 0)]

    rowwise.said(loops.LAYER, layer, lambda shape, length: [shape, kept(shape, length), kept(shape, length)])
    rowwise.said(loops.LAYER_GRAD, grad, lambda shape, length: [shape])
    rowwise.said(loops.LAYER_WEIGHT, of_weight, lambda shape, length: [(length,)])


_said_of_layers()


# ---------------------------------------------------------------------- over groups of channels


def _grouped(x: Any, group: int) -> Any:
    return lax.reshape(wide(x), (x.shape[0], group, int(np.prod(x.shape[1:], dtype=np.int64)) // group))


def _of_channels(p: Any, ndim: int) -> Any:
    """A value for each channel, as it meets a tensor of `ndim` dimensions."""
    return lax.reshape(wide(p), (p.shape[0],) + (1,) * (ndim - 2))


def _not_channels(ndim: int) -> tuple[int, ...]:
    return (0, *range(2, ndim))


def _group_xhat(input: Any, result1: Any, result2: Any, group: int) -> Any:
    return (_grouped(input, group) - result1[:, :, None]) * result2[:, :, None]


def _group_norm_grads(
    grad0: Any, grad1: Any, grad2: Any, input: Any, result1: Any, result2: Any, weight: Any, group: Any,
) -> dict[str, Any]:  # fmt: skip
    if grad0 is None:
        grad0 = zeros_like(input)
    if grad1 is grad2 is None and _loops_groups(grad0, input, result1, result2, weight):
        found = _GROUP_GRAD.bind(grad0, input, result1, result2, _ones(weight, input), groups=group, eps=0.0)
        found = [found[0], *[lax.reduce_sum(part, (0,)) for part in found[1:]]]
    else:
        grad1, grad2 = (zeros_like(s) if grad is None else grad for grad, s in zip((grad1, grad2), (result1, result2), strict=True))
        found = _said_group_grads(grad0, input, result1, result2, weight, group, grad1, grad2)
        found = [found[0], *[lax.reduce_sum(part, _not_channels(input.ndim)) for part in found[1:]]]
    return dict(zip(("input", "weight", "bias"), found, strict=True))


def _said_group_grads(grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, group: int, grad_mean: Any, grad_rstd: Any) -> list[Any]:
    """The gradient of x, and of weight and bias what each element adds to it."""
    g = _grouped(grad if weight is None else wide(grad) * _of_channels(weight, grad.ndim), group)
    xhat = _group_xhat(x, mean, rstd, group)
    found = _standardized_grad(g, xhat, rstd[:, :, None], (2,), grad_mean[:, :, None], grad_rstd[:, :, None])
    return [lax.reshape(found, x.shape), wide(grad) * lax.reshape(xhat, x.shape), wide(grad)]


@op("native_group_norm(Tensor input, Tensor? weight, Tensor? bias, int group, float eps)", order=IMAGE_ALONE, shows=("input", "weight"),
    method=False, toplevel=False, results=_RESULTS, numpy=numpy_standardized.group_norm, numpy_grads=numpy_standardized.group_norm_grads,
    validate=_check_parameters("GroupNormKernelImpl"),
    grads={name: Together(_group_norm_grads, name) for name in ("input", "weight", "bias")}, attributes="eps")  # fmt: skip
def native_group_norm(x: Any, weight: Any, bias: Any, group: int, eps: float) -> Any:
    """Each group of channels of each sample brought to mean 0 and variance 1, scaled and shifted by channel; mean; reciprocal deviation."""
    if _loops_groups(x, weight, bias):
        return tuple(_GROUP.bind(x, _ones(weight, x), _zeros(bias, x), groups=group, eps=float(eps)))
    return _said_group_norm(x, weight, bias, group, eps)


def _said_group_norm(x: Any, weight: Any, bias: Any, group: int, eps: float) -> Any:
    y, mean, rstd, _ = _standardized(_grouped(x, group), (2,), eps)
    y = lax.reshape(y, x.shape)
    y = y if weight is None else y * _of_channels(weight, x.ndim)
    y = y if bias is None else y + _of_channels(bias, x.ndim)
    return y.astype(x.dtype), *_kept((lax.squeeze(mean, (2,)), lax.squeeze(rstd, (2,))), x, weight, bias)


def _ones(weight: Any, x: Any) -> Any:
    return jnp.ones(x.shape[1:2], x.dtype) if weight is None else weight


def _zeros(bias: Any, x: Any) -> Any:
    return jnp.zeros(x.shape[1:2], x.dtype) if bias is None else bias


def _loops_groups(*arrays: Any) -> bool:
    """Whether the loop is for images and their channels' numbers, None among them for those that are missing."""
    x = arrays[0]
    return math.prod(x.shape[2:]) >= _LEAST_SPACE and along.fits(*[a for a in arrays if a is not None])


def _said_group(x: Any, weight: Any, bias: Any, *, groups: int, eps: float) -> list[Any]:
    return list(_said_group_norm(x, weight, bias, groups, eps))


def _said_group_parts(grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, *, groups: int, eps: float) -> list[Any]:
    zeros = zeros_like(mean)
    found, *parts = _said_group_grads(grad, x, mean, rstd, weight, groups, zeros, zeros)
    return [found, *[lax.reduce_sum(part, tuple(range(2, x.ndim))) for part in parts]]


def _shapes_of_groups(x: Any, *_: Any, groups: int, eps: float) -> list[tuple[int, ...]]:
    return [x.shape, (x.shape[0], groups), (x.shape[0], groups)]


_GROUP = primitives.primitive("group", _said_group, primitives.Loop(ALONG, partial(how_of_groups, "group"), _shapes_of_groups, _LEAST))
_GROUP_GRAD = primitives.primitive(
    "group_grad", _said_group_parts,
    primitives.Loop(ALONG, partial(how_of_groups, "group_grad"), lambda x, *_, **__: [x.shape, x.shape[:2], x.shape[:2]], _LEAST),
)  # fmt: skip


# ---------------------------------------------------------------------- over the batch


def _channel_stats(p: Any, ndim: int) -> Any:
    return lax.reshape(p, (1, p.shape[0]) + (1,) * (ndim - 2))


def _batch_xhat(input: Any, result1: Any, result2: Any) -> Any:
    return (wide(input) - _channel_stats(result1, input.ndim)) * _channel_stats(result2, input.ndim)


def _has_rows(*arrays: Any) -> bool:
    """Whether the loop is for images and their channels' numbers, None among them for those that are missing."""
    return math.prod(arrays[0].shape[2:]) >= _LEAST_SPACE and rowwise.knows(*arrays)


def _batch_norm_grads(grad0: Any, grad1: Any, grad2: Any, input: Any, result1: Any, result2: Any, weight: Any) -> dict[str, Any]:
    if grad0 is None:
        grad0 = zeros_like(input)
    if grad1 is grad2 is None and _has_rows(grad0, input, result1, result2, weight):
        arrays = grad0, input, result1, result2, _ones(weight, input)
        found = rowwise.by_rows(loops.CHANNELS_GRAD, *arrays, length=math.prod(input.shape[2:]), inner=input.shape[1])
    else:
        grad1, grad2 = (zeros_like(s) if grad is None else grad for grad, s in zip((grad1, grad2), (result1, result2), strict=True))
        found = _said_batch_grads(grad0, input, result1, result2, weight, grad1, grad2)
    return dict(zip(("input", "weight", "bias"), found, strict=True))


def _said_batch_grads(grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, grad_mean: Any, grad_rstd: Any) -> list[Any]:
    ndim, xhat = x.ndim, _batch_xhat(x, mean, rstd)
    g = wide(grad) if weight is None else wide(grad) * _of_channels(weight, ndim)
    gradients = (_channel_stats(grad_mean, ndim), _channel_stats(grad_rstd, ndim))
    of_input = _standardized_grad(g, xhat, _channel_stats(rstd, ndim), _not_channels(ndim), *gradients)
    return [of_input, *[lax.reduce_sum(each, _not_channels(ndim)) for each in (wide(grad) * xhat, wide(grad))]]


def _said_of_channels() -> None:
    def moments(x: Any, **how: Any) -> list[Any]:
        dims = _not_channels(x.ndim)
        _, mean, _, variance = _standardized(x, dims, 0.0)
        return [lax.squeeze(mean, dims), lax.squeeze(variance, dims)]

    def made(x: Any, mean: Any, rstd: Any, weight: Any, bias: Any, **how: Any) -> list[Any]:
        return [_batch_xhat(x, mean, rstd) * _of_channels(weight, x.ndim) + _of_channels(bias, x.ndim)]

    def grads(grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, **how: Any) -> list[Any]:
        zeros = zeros_like(mean)
        return _said_batch_grads(grad, x, mean, rstd, weight, zeros, zeros)

    rowwise.said(loops.MOMENTS, moments, lambda shape, length: [shape[1:2]] * 2)
    rowwise.said(loops.CHANNELS, made, lambda shape, length: [shape])
    rowwise.said(loops.CHANNELS_GRAD, grads, lambda shape, length: [shape, shape[1:2], shape[1:2]])


_said_of_channels()


_STATISTICS = dict.fromkeys(("running_mean", "running_var"), "native_batch_norm")


@op("native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, Scalar momentum, float eps)",
    order=IMAGE_ALONE, method=False, toplevel=False, results=(*_RESULTS, "running_mean_after", "running_var_after"),
    validate=lambda x, w, b, m, v, momentum, **_: _check_parameters("batch_norm")(x, w, b, m, v),
    numpy=numpy_standardized.batch_norm, numpy_grads=numpy_standardized.batch_norm_grads,
    grads={name: Together(_batch_norm_grads, name) for name in ("input", "weight", "bias")},
    attributes="eps training=True running_mean=None running_var=None", shows=("input", "weight"), constants=_STATISTICS)  # fmt: skip
def native_batch_norm(x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: Any, eps: float) -> Any:
    """Each channel brought to mean 0 and variance 1 over batch and space, scaled and shifted; mean, reciprocal deviation; the running
    statistics moved towards this batch's mean and unbiased variance by `momentum`."""
    dims = _not_channels(x.ndim)
    by_loop = _has_rows(x, weight, bias)
    how = dict(length=math.prod(x.shape[2:]), inner=x.shape[1])
    if by_loop:
        mean, variance = [lax.expand_dims(s, dims) for s in rowwise.by_rows(loops.MOMENTS, x, **how)]
        rstd = lax.rsqrt(variance + eps)
        given = [*[lax.squeeze(s, dims) for s in (mean, rstd)], _ones(weight, x), _zeros(bias, x)]
        y = rowwise.by_rows(loops.CHANNELS, x, *given, **how)[0]
    else:
        y, mean, rstd, variance = _standardized(wide(x), dims, eps)
    kept = _kept((mean, rstd), x, weight, bias, running_mean, running_var)
    count = int(np.prod([x.shape[d] for d in dims], dtype=np.int64))
    if is_half(kept[0].dtype):  # PyTorch makes the result of these, and rounds each step of the variance
        biased = rounded(rounded(variance * count, x) / rounded(jnp.asarray(count, variance.dtype), x), x)
        kept[1] = lax.rsqrt(biased + eps).astype(x.dtype)
        y = (wide(x) - wide(kept[0])) * wide(kept[1])
    if not by_loop:
        y = y if weight is None else y * _of_channels(weight, x.ndim)
        y = (y if bias is None else y + _of_channels(bias, x.ndim)).astype(x.dtype)
    unbiased = variance * (count / (count - 1) if count > 1 else float("nan"))
    outs = [y, *(lax.squeeze(k, dims) for k in kept)]
    for old, new in ((running_mean, mean), (running_var, unbiased)):
        if old is not None:
            step = momentum.astype(wide(old).dtype)
            outs.append((wide(old) * (1 - step) + lax.squeeze(new, dims) * step).astype(old.dtype))
    return tuple(outs)


def _rstd_of(running_var: Any, eps: float) -> Any:
    return lax.rsqrt(wide(running_var) + eps)


@op("native_batch_norm_eval(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float eps)", method=False,
    toplevel=False, order=IMAGE_ALONE, node="NativeBatchNormBackward0", validate=_check_parameters("batch_norm"),
    grads={"input": lambda grad, weight, running_var, eps:
               wide(grad) * _of_channels(_rstd_of(running_var, eps) if weight is None else _rstd_of(running_var, eps) * wide(weight), grad.ndim),
           "weight": lambda grad, input, running_mean, running_var, eps:
               lax.reduce_sum(wide(grad) * _batch_xhat(input, running_mean, _rstd_of(running_var, eps)), _not_channels(input.ndim)),
           "bias": lambda grad: lax.reduce_sum(wide(grad), _not_channels(grad.ndim))},
    shows=("input", "weight", "running_mean", "running_var"), attributes="eps training=False", constants=_STATISTICS)  # fmt: skip
def native_batch_norm_eval(x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, eps: float) -> Any:
    """Each channel normalized by the running statistics, scaled and shifted."""
    scale = _rstd_of(running_var, eps)
    scale = scale if weight is None else scale * wide(weight)
    y = (wide(x) - _channel_stats(wide(running_mean), x.ndim)) * _channel_stats(scale, x.ndim)
    return (y if bias is None else y + _of_channels(bias, x.ndim)).astype(x.dtype)


@op("_tiled(Tensor self, int times)", method=False, toplevel=False, linear=True, node="RepeatBackward0", numpy=forms.tiled)
def tiled(x: Any, times: int) -> Any:
    """A vector `times` times over."""
    return lax.reshape(broadcast_to(x, (times, x.shape[0])), (times * x.shape[0],))
