"""`torch.nn.functional`: normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.autograd.grad_mode import _unsafe_preserve_version_counter
from torchgrad_jax.calling.expecting import expect_tensor
from torchgrad_jax.calling.kinds import type_name
from torchgrad_jax.calling.out import write_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.calling.recalled import recalling
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.level import in_transform, stands_for_batch
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import rewrite
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.matrices.norms import vector_norm
from torchgrad_jax.functions.overloads import with_number
from torchgrad_jax.functions.reductions import clamp_min
from torchgrad_jax.functions.views import expand, reshape, squeeze, unsqueeze
from torchgrad_jax.nn.padding import pad
from torchgrad_jax.nn.pooling import avg_pool2d, avg_pool3d
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.normalization import check_parameter_types
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user

BATCHED = (
    "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in place, were not batched.\nIf you are "
    "using a module and do not need eval mode, please set `track_running_stats` to be False.If you are using a prebuilt module and do not need "
    "eval mode, please see the functorch website for resources on how to patch your module to work with vmap"
)

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm"]


@lru_cache(maxsize=4096)
def _bound(operator: str, present: tuple[bool, ...], statics: tuple[Any, ...], before: bool = False, number: bool = False) -> Any:
    """The operator on the tensors that are `present`, then perhaps a number, then its static arguments; `before`: the first of them comes
    right after the first tensor."""
    tensors: list[Any] = [ARRAY if p else Static(None) for p in present]
    rest: list[Any] = [Static(s) for s in statics]
    if before:
        tensors.insert(1, rest.pop(0))
    return registry[operator].bind((*tensors, *([ARRAY] if number else []), *rest))


def _given(*tensors: Any) -> tuple[Any, ...]:
    return tuple([x for x in tensors if x is not None])


# ---------------------------------------------------------------------- over the last dimensions


def _check_last(name: str, input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None) -> tuple[int, ...]:
    """The normalized shape, where it fits. TypeError, RuntimeError with PyTorch's texts."""
    expect_tensor(name, input)
    if not isinstance(normalized_shape, (tuple, list)):
        raise TypeError(f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not {type(normalized_shape).__name__}")
    size = tuple(normalized_shape)
    if not size:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = []"
        )
    for label, p in (("weight", weight), ("bias", bias)):
        if p is not None and p._aval.shape != size:
            raise RuntimeError(
                f"Expected {label} to be of same shape as normalized_shape, but got {label} of shape {list(p._aval.shape)} and "
                f"normalized_shape = {list(size)}"
            )
    shape = input._aval.shape
    if shape[len(shape) - len(size) :] != size or len(shape) < len(size):
        if name == "rms_norm" and len(shape) < len(size):
            raise ValueError(f"Input tensor must have at least {len(size)} dimensions, but got {len(shape)}")
        stars = "*" if name == "rms_norm" else "*, "
        raise RuntimeError(
            f"Given normalized_shape={list(size)}, expected input with shape [{stars}{', '.join(map(str, size))}], but got input of size{list(shape)}"
        )
    return size


def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """The last dimensions, of sizes `normalized_shape`, brought to mean 0 and variance 1, then scaled and shifted.

    TypeError, RuntimeError where sizes or dtypes do not fit.
    """
    expect_tensor("layer_norm", input)
    if dtypes.category(input._aval.dtype) == dtypes.FLOAT:
        check_parameter_types(input._aval, *[p._aval for p in (weight, bias) if p is not None])
    size = _check_last("layer_norm", input, normalized_shape, weight, bias)
    bound = _bound("native_layer_norm", (True, weight is not None, bias is not None), (size, float(eps)), True)
    return apply(bound, _given(input, weight, bias))[0]


@public("torch.layer_norm")
def over_last(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.layer_norm`. `cudnn_enable` makes no difference: there is one kernel."""
    return layer_norm(input, normalized_shape, weight, bias, eps)


@public("torch")
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """The last dimensions over the root of their mean square, then scaled. `eps` is by default the dtype's distance from 1 to the next number.

    TypeError, ValueError, RuntimeError where sizes or dtypes do not fit.
    """
    size = _check_last("rms_norm", input, normalized_shape, weight, None)
    dtype = input._aval.dtype
    if not dtypes.is_float(dtype):
        raise NotImplementedError(f"\"rms_norm\" not implemented for '{dtypes.of(dtype).title}'")
    if weight is not None and weight._aval.dtype != dtype:
        warn_user(
            f"Mismatch dtype between input and weight: input dtype = {dtypes.of(dtype).word}, weight dtype = {dtypes.of(weight._aval.dtype).word}, "
            "Cannot dispatch to fused implementation.",
        )
    half = dtype.itemsize == 2
    x: Any = cast(input, dtypes.float32) if half else input
    if eps is None:
        eps = float(np.finfo(x._aval.dtype).eps)
    dims = tuple(range(-len(size), 0))
    made = x * with_number("add", x.pow(2).mean(dims, True), eps).rsqrt()
    if weight is not None:
        made = made * weight
    return cast(made, input.dtype) if half else made


# ---------------------------------------------------------------------- over groups of channels


def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Each of `num_groups` groups of channels of each sample brought to mean 0 and variance 1, then scaled and shifted by channel.

    RuntimeError, ValueError where sizes or dtypes do not fit.
    """
    shape = input.size()
    if len(shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    if not isinstance(num_groups, int) or isinstance(num_groups, bool):
        raise TypeError(f"group_norm(): argument 'num_groups' (position 2) must be int, not {type_name(num_groups)}")
    _check_more_than_one((shape[0] * shape[1] // num_groups, num_groups, *shape[2:]), list(shape))
    return of_groups(input, num_groups, weight, bias, eps)


@public("torch.group_norm")
def of_groups(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, cudnn_enabled: bool = True
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.group_norm`, also for a single value per group. `cudnn_enabled` makes no difference: there is one kernel."""
    shape = input._aval.shape
    if len(shape) < 2:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-max(len(shape), 1)}, {max(len(shape), 1) - 1}], but got 1)")
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if shape[1] % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape {list(shape)} and num_groups={num_groups}"
        )
    for label, p in (("weight", weight), ("bias", bias)):
        if p is not None and p._aval.shape != (shape[1],):
            raise RuntimeError(
                f"Expected {label} to be a vector of size equal to the number of channels in input, but got {label} of shape "
                f"{list((weight if weight is not None else p)._aval.shape)} and input of shape {list(shape)}"
            )
    bound = _bound("native_group_norm", (True, weight is not None, bias is not None), (int(num_groups), float(eps)))
    return apply(bound, _given(input, weight, bias))[0]


def _check_more_than_one(size: Sequence[int], shown: Any) -> None:
    if size[0] * math.prod(size[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {shown}")


# ---------------------------------------------------------------------- over the batch


def _check_channels(input: Tensor, **parameters: Tensor | None) -> None:
    shape = input._aval.shape
    channels = shape[1] if len(shape) > 1 else 0
    for label, p in parameters.items():
        if p is not None and p._aval.size != channels:
            raise RuntimeError(f"{label} should contain {channels} elements not {p._aval.size}")


def _batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None, training: bool,
    momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    if not training:
        return _by_running_statistics(input, running_mean, running_var, weight, bias, float(eps))
    _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if (running_mean is None) != (running_var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    statistics = (running_mean, running_var)
    present = tuple([x is not None for x in (input, weight, bias, *statistics)])
    bound = _bound("native_batch_norm", present, (float(eps),), number=True)
    if running_mean is None or running_var is None:
        return apply(bound, (*_given(input, weight, bias, *statistics), float(momentum)))[0]
    if stands_for_batch(input) and not (stands_for_batch(running_mean) and stands_for_batch(running_var)):
        raise RuntimeError(BATCHED)
    made = apply(bound, (*_given(input, weight, bias, *statistics), float(momentum)))
    moved = _moved_statistics(input, running_mean, running_var, momentum, eps) if in_transform() else made[3:]
    _put_uncounted(running_mean, moved[0])
    _put_uncounted(running_var, moved[1])
    return made[0]


@recalling
def _by_running_statistics(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:  # fmt: skip
    for label, p in (("running_mean", running_mean), ("running_var", running_var)):
        if p is None:
            raise RuntimeError(f"{label} must be defined in evaluation mode")
    _check_channels(input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    given = (input, weight, bias, running_mean, running_var)
    return apply(_bound("native_batch_norm_eval", tuple([x is not None for x in given]), (eps,)), _given(*given))


def _put_uncounted(t: Tensor, made: Tensor) -> None:
    """Write running statistics. No version counter counts that: what a call in evaluation mode has saved of them is, unnoticed, what they are now."""
    storage = t._storage
    if in_transform():  # of its memory outside others know
        rewrite(t, made._read(), "batch_norm")
    elif storage is None or t._view is not None or not storage.counted:
        with nullcontext() if t.is_inference() else _unsafe_preserve_version_counter(t):
            rewrite(t, made._read(), "batch_norm")
    else:
        before, version = storage.value, storage.counter.version
        rewrite(t, made._read(), "batch_norm")
        storage.set_version(version, before)


def _moved_statistics(input: Tensor, running_mean: Tensor, running_var: Tensor, momentum: float, eps: float) -> Any:
    """What the running statistics become: apart from the result, so that in no level of a transform they have a graph, or depend on weights."""
    bound = _bound("native_batch_norm", (True, False, False, True, True), (float(eps),), number=True)
    rec = per_thread.recorder
    recording, rec.grad_enabled = rec.grad_enabled, False
    try:
        return apply(bound, (input, running_mean, running_var, float(momentum)))[3:]
    finally:
        rec.grad_enabled = recording


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None, bias: Tensor | None = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Each channel (dimension 1) normalized by the running statistics, or, in training, by its own mean and variance, towards which the
    running statistics, if any, are then moved in place: running = (1 - momentum) * running + momentum * batch.

    ValueError, RuntimeError where sizes or dtypes do not fit, and in training for a single value per channel, or an `eps` that is not positive.
    """
    if training:
        size = input.size()
        _check_more_than_one(size, size)
        if eps <= 0.0:
            raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    elif eps < 0.0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    return by_batch(input, weight, bias, running_mean, running_var, training, momentum, eps)


@public("torch.batch_norm")
def by_batch(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, training: bool,
    momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.batch_norm`, also for a single value per channel. `cudnn_enabled` makes no difference: there is one kernel."""
    if not input._aval.size:  # of any dtype; PyTorch's is a sum of products too
        made: Any = input.clone()
        made = made if weight is None else made * weight[0]
        return made if bias is None else made + bias[0]
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Each channel of each sample normalized by its own mean and variance (or by the running ones), then scaled and shifted by channel.
    Running statistics, if given, move towards the mean over the samples.

    ValueError, RuntimeError where sizes or dtypes do not fit.
    """
    if use_input_stats:
        size = input.size()
        if math.prod(size[2:]) == 1:
            raise ValueError(f"Expected more than 1 spatial element when training, got input size {size}")
    return by_instance(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps)


@public("torch.instance_norm")
def by_instance(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, use_input_stats: bool,
    momentum: float, eps: float, cudnn_enabled: bool = True,
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.instance_norm`, also for a single value per channel. `cudnn_enabled` makes no difference: there is one kernel."""
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
    samples, channels, *space = input._aval.shape
    as_batch = reshape(input, (1, samples * channels, *space))
    repeated = [None if p is None else _repeat(p, samples) for p in (running_mean, running_var, weight, bias)]
    mean, var, scale, shift = repeated
    out = _batch_norm(as_batch, mean, var, scale, shift, use_input_stats, momentum, eps)
    if use_input_stats:
        for old, new in zip((running_mean, running_var), repeated, strict=False):
            if old is not None and new is not None:
                rewrite(old, _mean_of_samples(new, samples, channels)._read(), "instance_norm")
    return reshape(out, tuple(input._aval.shape))


def _mean_of_samples(p: Tensor, samples: int, channels: int) -> Tensor:
    rec = per_thread.recorder
    recording, rec.grad_enabled = rec.grad_enabled, False
    try:
        return reshape(p, (samples, channels)).mean(0)
    finally:
        rec.grad_enabled = recording


def _repeat(p: Tensor, times: int) -> Tensor:
    return apply(registry["_tiled"].bind((ARRAY, Static(times))), (p,))


# ---------------------------------------------------------------------- by a norm


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """The input over the larger of its p-norm along `dim` and `eps`. IndexError for a dimension out of range."""
    made = input / expand(clamp_min(vector_norm(input, 2.0 if p is None else p, dim, keepdim=True), eps), tuple(input._aval.shape))
    if out is None:
        return made
    return write_out("div", out, made)


# ---------------------------------------------------------------------- over neighbouring channels


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """input / (k + alpha * mean of the squares of `size` channels around each) ** beta (Krizhevsky et al. 2012); (N, C, *).

    ValueError for fewer than 3 dimensions, RuntimeError for a size that is not positive.
    """
    shape = input._aval.shape
    if len(shape) < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input (got {len(shape)} dimensions)")
    if not input._aval.size:
        return input
    around = (size // 2, (size - 1) // 2)
    square = input * input
    if len(shape) == 3:
        means = squeeze(avg_pool2d(pad(unsqueeze(square, 1), (0, 0, *around)), (size, 1), 1), 1)
    else:
        rows = reshape(square, (shape[0], 1, shape[1], shape[2], -1))
        means = reshape(squeeze(avg_pool3d(pad(rows, (0, 0, 0, 0, *around)), (size, 1, 1), 1), 1), shape)
    return input / (means * alpha + k) ** beta
