"""Convolutions: by loops of C's where there are some (`native/convolving.pxd`), else as products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.cost import CHEAP, product
from torchgrad_jax.runtime.baseline.products import working_dtype
from torchgrad_jax.runtime.baseline.rules import rule
from torchgrad_jax.runtime.baseline.shaping import places_of_padding
from torchgrad_jax.runtime.native import handlers

# In groups of channels: a multiplication of one tap, and an element that is read or written.
_TAP, _ELEMENT = 0.1, 0.3

Ints = tuple[int, ...]


@cache
def has_loops() -> bool:
    """Whether there are the loops."""
    one = np.zeros((1, 1, 1), np.float32)
    return handlers.convolve(one, one, one.copy(), np.array([1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 0], np.int64))


def fits_loops(eqn: Any) -> bool:
    """Whether an equation is a convolution of images, or of lines, that the loops know: of float32, with one kernel for all channels."""
    if eqn.primitive.name != "conv_general_dilated":
        return False
    x, kernel, out = (v.aval for v in (*eqn.invars, *eqn.outvars))
    order = tuple(range(x.ndim))
    if x.ndim not in (3, 4) or tuple(eqn.params["dimension_numbers"]) != (order, order, order) or 0 in (x.size, kernel.size, out.size):
        return False
    grouped = eqn.params["feature_group_count"] * eqn.params["batch_group_count"] > 1
    return not grouped and all([a.dtype == np.float32 for a in (x, kernel, out)])


def is_of_kernel(eqn: Any) -> bool:
    """Whether it is a kernel's gradient. JAX convolves with a kernel that is as large as the image then, of both with batch and channels exchanged:
    the loops read them as they were before."""
    return eqn.invars[1].aval.shape[-1] > eqn.outvars[0].aval.shape[-1]


def how_of(eqn: Any) -> np.ndarray:
    """What the loops are told of a convolution that fits them."""
    params, of_kernel = eqn.params, is_of_kernel(eqn)
    sizes, strides, dilations = eqn.invars[1].aval.shape[2:], params["window_strides"], params["rhs_dilation"]
    if of_kernel:
        sizes, strides, dilations = eqn.outvars[0].aval.shape[2:], dilations, strides
    before = [low for low, _ in params["padding"]]
    numbers = triple(sizes, 1), triple(strides, 1), triple(before, 0), triple(params["lhs_dilation"], 1), triple(dilations, 1)
    return np.array([*[n for three in numbers for n in three], int(of_kernel), 1, 0], np.int64)


def asks_loops(kernel: Ints, dilation: Ints, groups: int) -> bool:
    """Whether a convolution asks for the loops itself: of volumes, in groups of channels, dilated, or of single elements."""
    return groups > 1 or max(dilation) > 1 or len(kernel) == 3 or set(kernel) == {1}


def how_of_groups(x: Any, y: Any, *, of: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, shape: Ints) -> np.ndarray:
    """What the loops are told of a convolution in groups of channels, of operands of such avals: of its result, 0 or 3, or of the gradients of the
    images, 1, or of the kernel, 2."""
    before, apart = padding, (1,) * len(stride)
    if of == 1:  # a convolution of the result's gradient with the kernel turned around
        before = tuple([d * (k - 1) - p for d, k, p in zip(dilation, kernel, padding, strict=True)])
        stride, apart = apart, stride
    numbers = triple(kernel, 1), triple(stride, 1), triple(before, 0), triple(apart, 1), triple(dilation, 1)
    return np.array([*[n for three in numbers for n in three], of == 2, groups, of == 1], np.int64)


def cost_of_loops(images: int, kernel: Ints, sizes: Ints) -> float:
    """What the loops take for so many images, a kernel (features, channels, *) and results of these sizes."""
    return 5_000.0 + product(images, kernel[0], math.prod(kernel[1:]), math.prod(sizes), np.dtype(np.float32))


def _cost_of_groups(eqn: Any) -> float:
    of, groups, shape = (eqn.params[name] for name in ("of", "groups", "shape"))
    images = shape if of != 2 else eqn.invars[1].aval.shape
    kernel = eqn.invars[1].aval.size if of != 2 else math.prod(shape)
    return 5_000.0 + _TAP * images[0] * math.prod(images[2:]) * kernel + _ELEMENT * sum([v.aval.size for v in (*eqn.invars, *eqn.outvars)])


@rule("grouped_convolution", cost=_cost_of_groups, fresh=True)
def _in_groups(eqn: Any) -> Any:
    how = how_of_groups(*[v.aval for v in eqn.invars], **eqn.params)

    def convolve(x: Any, y: Any) -> Any:
        made = np.empty(eqn.params["shape"], np.float32)
        handlers.convolve(contiguous(x), contiguous(y), made, how)
        return [made]

    return convolve


def triple(numbers: Sequence[int], missing: int) -> Ints:
    """Three dimensions' numbers; images have two, lines one."""
    return (missing,) * (3 - len(numbers)) + tuple(numbers)


def _by_loops(eqn: Any) -> Any:
    how, of_kernel, shape = how_of(eqn), is_of_kernel(eqn), eqn.outvars[0].aval.shape

    def convolve(x: Any, kernel: Any) -> Any:
        if of_kernel:
            x, kernel = x.swapaxes(0, 1), kernel.swapaxes(0, 1)
        made = np.empty((shape[1], shape[0], *shape[2:]) if of_kernel else shape, np.float32)
        handlers.convolve(contiguous(x), contiguous(kernel), made, how)
        return made.swapaxes(0, 1) if of_kernel else made

    return convolve


def _convolution_cost(eqn: Any) -> float:
    kernel, found, numbers = eqn.invars[1].aval, eqn.outvars[0].aval, eqn.params["dimension_numbers"]
    features, images = kernel.shape[numbers.rhs_spec[0]], found.shape[numbers.out_spec[0]]
    inner, places = kernel.size // max(1, features), found.size // max(1, features * images)
    groups = eqn.params["feature_group_count"] * eqn.params["batch_group_count"]
    if has_loops() and fits_loops(eqn):
        return 5_000.0 + product(images, features, inner, places, found.dtype)
    copied = 4 * CHEAP * images * groups * inner * places
    return 15_000.0 + copied + product(images, features, inner, places, found.dtype)


@rule("conv_general_dilated", cost=_convolution_cost, fresh=True)
def _convolution(eqn: Any) -> Any:
    """As a product of matrices, if not by loops: the columns of one are the windows of the image."""
    if has_loops() and fits_loops(eqn):
        return _by_loops(eqn)
    p, dtype, work = eqn.params, eqn.outvars[0].aval.dtype, working_dtype(eqn)
    numbers, strides, dilation = p["dimension_numbers"], p["window_strides"], p["rhs_dilation"]
    image, kernel, found = eqn.invars[0].aval.shape, eqn.invars[1].aval.shape, eqn.outvars[0].aval.shape
    image, kernel, found = [image[d] for d in numbers.lhs_spec], [kernel[d] for d in numbers.rhs_spec], [found[d] for d in numbers.out_spec]
    back = tuple(np.argsort(numbers.out_spec).tolist())
    parts = p["batch_group_count"]
    groups, images = p["feature_group_count"] * parts, image[0] // parts
    features, depth, window, outs = kernel[0], kernel[1], kernel[2:], found[2:]
    padding = [(low, high, d - 1) for (low, high), d in zip(p["padding"], p["lhs_dilation"], strict=True)]
    total = [low + high + n + max(n - 1, 0) * step for n, (low, high, step) in zip(image[2:], padding, strict=True)]
    into, of = places_of_padding(image[2:], padding, total)
    padded = any([numbers != (0, 0, 0) for numbers in padding])
    # The longer runs of the image are copied as they lie, be it those of a window (in the gradient of a kernel) or those of the result.
    turned, inner, places = window[-1:] > outs[-1:], depth * math.prod(window), math.prod(outs)
    view_shape = (images, groups, *outs, depth, *window) if turned else (images, groups, depth, *window, *outs)
    columns_shape = (images, groups, places, inner) if turned else (images, groups, inner, places)

    def arranged(x: Any) -> Any:
        x = x.transpose(numbers.lhs_spec).astype(work, copy=False)
        if parts > 1:  # groups of images, each with features of its own: as groups of channels
            x = x.reshape(parts, images, *x.shape[1:]).swapaxes(0, 1).reshape(images, parts * x.shape[1], *x.shape[2:])
        if padded:
            wide = np.zeros((*x.shape[:2], *total), work)
            wide[(..., *into)] = x[(..., *of)]
            x = wide
        return x

    def convolve(x: Any, w: Any) -> Any:
        x, w = arranged(x), w.transpose(numbers.rhs_spec).astype(work, copy=False)
        a, b, *rest = x.strides
        moves = [s * d for s, d in zip(rest, dilation, strict=True)], [s * d for s, d in zip(rest, strides, strict=True)]
        strides_of_windows = (a, b * depth, *moves[1], b, *moves[0]) if turned else (a, b * depth, b, *moves[0], *moves[1])
        columns = contiguous(np.lib.stride_tricks.as_strided(x, view_shape, strides_of_windows, writeable=False)).reshape(columns_shape)
        product = np.matmul(w.reshape(groups, features // groups, -1), columns.mT if turned else columns)
        return product.reshape(images, features, *outs).transpose(back).astype(dtype, copy=False)

    if 0 in found or 0 in kernel or 0 in image:
        shape = tuple(eqn.outvars[0].aval.shape)
        return lambda x, w: np.zeros(shape, dtype)
    return convolve
