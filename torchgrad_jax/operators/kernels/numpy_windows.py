"""Convolutions, the largest and the mean elements of windows, and windows as columns: forms on NumPy arrays (`declaration/numpy_forms.py`).

Each layer of a network is of another size, and its traces take 0.4 to 1 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array
from torchgrad_jax.declaration.numpy_placing import gradient
from torchgrad_jax.operators.resampling import EACH_TAP, are_for_taps, means
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.convolutions import asks_loops, cost_of_loops, has_loops, how_of_groups
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.loops import ADDED, GRADIENT, PLACES, VALUES, even_bounds, how_of_places, how_of_windows
from torchgrad_jax.runtime.baseline.reducing import summing
from torchgrad_jax.runtime.compiling.foreign import CONVOLUTION, POOLING, knows
from torchgrad_jax.runtime.native import handlers
from torchgrad_jax.runtime.operation import stand_in

Ints = tuple[int, ...]
# Windows of up to this many elements are compared, or added up, element by element.
MAX_SHIFTS = 32
# What an element of an image takes whose windows are compared, in nanoseconds.
_ELEMENT = 1.0


def _convolved(of: int, x: Array, y: Array, shape: Ints, **how: Any) -> Array:
    made = np.empty(shape, np.float32)
    handlers.convolve(contiguous(x), contiguous(y), made, how_of_groups(x, y, of=of, shape=shape, **how))
    return made


def output_sizes(sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    """The spatial sizes of a convolution's result."""
    return tuple([(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)])


def _fits(x: Array, w: Array, out: Ints, dilation: Ints, groups: int) -> bool:
    there = all([a.dtype == np.float32 for a in (x, w)]) and has_loops() and knows(CONVOLUTION) and 0 not in (x.size, w.size, math.prod(out))
    return there and (asks_loops(w.shape[2:], dilation, groups) or w.shape[-1] <= out[-1])  # else it is taken for a kernel's gradient


def convolution(bound: Any, specs: Sequence[Any]) -> Forms | None:
    """The form of a convolution of operands like these."""
    statics, (x, w, *bias) = bound.statics, specs
    stride, padding, dilation, groups = (statics[name] for name in ("stride", "padding", "dilation", "groups"))
    alike = all([b.dtype == np.float32 and b.shape == w.shape[:1] for b in bias])
    if statics["transposed"] or not alike or x.ndim != w.ndim:
        return None
    sizes = output_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    shape = (x.shape[0], w.shape[0], *sizes)
    if not _fits(x, w, shape, dilation, groups):
        return None
    how = {"kernel": w.shape[2:], "stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    def function(x: Array, w: Array, bias: Array | None = None) -> Array:
        found = _convolved(0, x, w, shape, **how)
        return found if bias is None else found + bias.reshape(bias.shape + (1,) * len(stride))

    cost = cost_of_loops(x.shape[0], w.shape, sizes)
    return Forms(function, lambda *arrays: stand_in(shape, x.dtype), True, takes=lambda *arrays: cost, planned=True)


def _of_input(grad: Array, w: Array, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Array:
    how = {"kernel": w.shape[2:], "padding": padding, "dilation": dilation, "groups": groups}
    if asks_loops(w.shape[2:], dilation, groups):
        return _convolved(1, grad, w, shape, stride=stride, **how)
    turned = np.swapaxes(w[(..., *(slice(None, None, -1),) * len(stride))], 0, 1)
    made = np.empty(shape, np.float32)
    told = how_of_groups(grad, turned, of=1, shape=shape, stride=stride, **how)
    told[-1] = 0  # the kernel is turned around already
    handlers.convolve(contiguous(grad), contiguous(turned), made, told)
    return made


def _reached(x: Array, grad: Array, stride: Ints, padding: Ints) -> Ints:
    """How large a kernel could be of which a convolution has this result: larger than it is where windows leave something of the image."""
    return tuple([n + 2 * p - s * (m - 1) for n, m, s, p in zip(x.shape[2:], grad.shape[2:], stride, padding, strict=True)])


def _of_weight(grad: Array, x: Array, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Array:
    kernel = shape[2:] if asks_loops(shape[2:], dilation, groups) else _reached(x, grad, stride, padding)
    made = _convolved(2, x, grad, (*shape[:2], *kernel), kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return made[(..., *[slice(n) for n in shape[2:]])]


def _is_usual(x: Array, w: Array, grad: Array, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> bool:
    """Whether the two gradients are what they are usually: see `operators/convolution.py`."""
    kernel = w.shape[2:]
    if asks_loops(kernel, dilation, groups):
        return True
    by_turned_kernel = all([p < k for p, k in zip(padding, kernel, strict=True)]) and kernel[-1] <= x.shape[-1]
    return by_turned_kernel and grad.shape[-1] > _reached(x, grad, stride, padding)[-1]


def convolution_grads(names: tuple[str, ...]) -> Forms:
    """The form of the gradients of these operands."""

    def function(grad: Array, avals: Any, *saved: Array, stride: Ints, padding: Ints, dilation: Ints, groups: int, **_: Any) -> Any:
        found = []
        for name, aval in zip(names, avals, strict=True):
            if name == "bias":
                found.append(summing((0, *range(2, grad.ndim)), grad.dtype)(grad))
            elif name == "input":
                found.append(_of_input(grad, saved[1], aval.shape, stride, padding, dilation, groups))
            else:
                found.append(_of_weight(grad, saved[0], aval.shape, stride, padding, dilation, groups))
        return found[0] if len(found) == 1 else tuple(found)

    def result(grad: Array, avals: Any, *saved: Array, transposed: bool, stride: Ints, padding: Ints, dilation: Ints, groups: int, **_: Any) -> Any:
        if transposed or len(saved) != 2 or grad.dtype != np.float32 or not _fits(*saved, grad.shape, dilation, groups):
            return None
        if not _is_usual(*saved, grad, stride, padding, dilation, groups):
            return None
        like = [stand_in(aval.shape, aval.dtype) for aval in avals]
        return like[0] if len(like) == 1 else tuple(like)

    def takes(grad: Array, x: Array, w: Array) -> float:
        return len(set(names) - {"bias"}) * cost_of_loops(grad.shape[0], w.shape, grad.shape[2:])

    return Forms(function, result, takes=takes, planned=True)


# ---------------------------------------------------------------------- the largest elements of windows


def _count(sizes: Sequence[int]) -> bool:
    return 0 < math.prod(sizes) < 1 << 31


def max_pool(sizes_of: Any, with_places: bool) -> Forms:
    """The form of the largest elements of windows, and of their places. sizes_of: how many windows there are, of an array and what they are."""

    def function(x: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Any:
        sizes = sizes_of(x, kernel_size, stride, padding, dilation, ceil_mode)
        shape = (*x.shape[: -len(sizes)], *sizes)
        made = [np.empty(shape, x.dtype), np.empty(shape, np.int64)][: 1 + with_places]
        how = {"kernel": kernel_size, "stride": stride, "padding": padding, "dilation": dilation, "sizes": sizes}
        handlers.pool([contiguous(x)], made, how_of_windows(x, of=PLACES if with_places else VALUES, **how))
        return tuple(made) if with_places else made[0]

    def result(x: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Any:
        if x.dtype.char not in "fd" or not knows(POOLING):
            return None
        sizes = sizes_of(x, kernel_size, stride, padding, dilation, ceil_mode)
        like = stand_in((*x.shape[: -len(sizes)], *sizes), x.dtype)
        if not _count(x.shape) or not _count(sizes):
            return None
        return (like, stand_in(like.shape, np.dtype(np.int64))) if with_places else like

    return Forms(function, result, True, each=_ELEMENT, planned=True)


def max_pool_vjp(sizes_of: Any) -> Forms:
    """The form of the gradient of the largest elements."""

    def function(grad: Array, aval: Any, x: Array, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> Array:
        sizes = sizes_of(x, kernel_size, stride, padding, dilation, ceil_mode)
        made, how = np.empty(x.shape, x.dtype), {"kernel": kernel_size, "stride": stride, "padding": padding, "dilation": dilation, "sizes": sizes}
        handlers.pool([contiguous(x), contiguous(grad)], [made], how_of_windows(x, of=GRADIENT, **how))
        return made

    def result(grad: Array, aval: Any, x: Array, **_: Any) -> Array | None:
        fits = x.dtype == grad.dtype and x.dtype.char in "fd" and knows(POOLING) and _count(x.shape) and _count(grad.shape)
        return stand_in(aval.shape, aval.dtype) if fits else None

    return Forms(function, result, True, each=_ELEMENT, planned=True)


# ---------------------------------------------------------------------- the means of windows


def pooled_size(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """The number of windows along one dimension. In `ceil_mode` the last one may reach over the end but must begin before it."""
    span = n + 2 * padding - dilation * (kernel - 1) - 1
    count = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= n + padding else count


def average_divisors(spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, sizes: Ints, include_pad: bool) -> np.ndarray:
    """How many elements each window counts."""
    counts = np.ones((), np.int64)
    for n, k, s, p, m in zip(spatial, kernel, stride, padding, sizes, strict=True):
        start = np.arange(m) * s - p
        stop = np.minimum(start + k, n + p)
        inside = np.minimum(stop, n) - np.maximum(start, 0)
        counts = counts[..., None] * (stop - start if include_pad else inside)
    return counts


def _mean_windows(
    shape: Ints, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, include_pad: bool, divisor: int | None
) -> tuple[Ints, Ints, Any, list[tuple[Any, ...]]]:  # fmt: skip
    """Of means of windows of a NumPy array of this shape: how many there are, the sizes of what they are of, with what is around the array, the
    divisors, and for each place in a window the index of all elements there."""
    spatial, lead = shape[-len(kernel) :], shape[: -len(kernel)]
    sizes = tuple([pooled_size(*numbers, 1, ceil_mode) for numbers in zip(spatial, kernel, stride, padding, strict=True)])
    whole = [max(n + 2 * p, (m - 1) * s + k) for n, k, s, p, m in zip(spatial, kernel, stride, padding, sizes, strict=True)]
    divisors = np.asarray(divisor) if divisor is not None else average_divisors(spatial, kernel, stride, padding, sizes, include_pad)
    index = [(..., *[slice(o, o + (m - 1) * s + 1, s) for o, m, s in zip(k, sizes, stride, strict=True)]) for k in np.ndindex(*kernel)]
    return (*lead, *sizes), (*lead, *whole), divisors, index


def _inside(shape: Ints, padding: Ints) -> tuple[Any, ...]:
    return (..., *[slice(p, p + n) for n, p in zip(shape[-len(padding) :], padding, strict=True)])


def _window_means(x: np.ndarray, kernel_size: Ints, stride: Ints, padding: Ints, *how: Any) -> np.ndarray:
    _, whole, divisors, index = _mean_windows(x.shape, kernel_size, stride, padding, *how)
    if whole != x.shape:
        padded = np.zeros(whole, x.dtype)
        padded[_inside(x.shape, padding)] = x
        x = padded
    total = x[index[0]]
    for place in index[1:]:
        total = total + x[place]
    return total / divisors.astype(x.dtype)


def _window_means_back(grad: np.ndarray, aval: Any, _: np.ndarray, kernel_size: Ints, stride: Ints, padding: Ints, *how: Any) -> np.ndarray:
    _made, whole, divisors, index = _mean_windows(aval.shape, kernel_size, stride, padding, *how)
    share, total = grad / divisors.astype(grad.dtype), np.zeros(whole, grad.dtype)
    for place in reversed(index):  # as JAX adds them up
        total[place] += share
    return total[_inside(aval.shape, padding)]


def _means_are_for(x: np.ndarray, kernel_size: Ints) -> bool:
    return x.dtype.char in "fd" and x.size > 0 and math.prod(kernel_size) <= MAX_SHIFTS


def _means_form(
    x: np.ndarray, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: bool, count_include_pad: bool, divisor_override: int | None
) -> np.ndarray | None:  # fmt: skip
    shape = _mean_windows(x.shape, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)[0]
    return stand_in(shape, x.dtype) if _means_are_for(x, kernel_size) and math.prod(shape) else None


MEANS = Forms(
    lambda x, *, ceil_mode, count_include_pad, divisor_override, **how: _window_means(
        x, *[how[name] for name in _WINDOW], ceil_mode, count_include_pad, divisor_override
    ),
    _means_form, each=2 * EACH_TAP, planned=True,
)  # fmt: skip
MEANS_BACK = Forms(
    lambda grad, aval, x, *, ceil_mode, count_include_pad, divisor_override, **how: _window_means_back(
        grad, aval, x, *[how[name] for name in _WINDOW], ceil_mode, count_include_pad, divisor_override
    ),
    lambda grad, aval, x, *, kernel_size, **_: stand_in(aval.shape, aval.dtype) if _means_are_for(grad, kernel_size) and aval.size else None,
    each=2 * EACH_TAP, planned=True,
)  # fmt: skip
_WINDOW = "kernel_size", "stride", "padding"


def _averaged(x: np.ndarray, output_size: Ints) -> np.ndarray:
    """`_adaptive_avg_pool` of a NumPy array."""
    for i, out in enumerate(output_size):
        axis = x.ndim - len(output_size) + i
        n = x.shape[axis]
        if n != out and n % out == 0:
            split = x.reshape(*x.shape[:axis], out, n // out, *x.shape[axis + 1 :])
            x = summing((axis + 1,), x.dtype)(split) / x.dtype.type(n // out)
        elif n != out:
            x = means(*even_bounds(n, out), n).of_array(x, axis)
    return x


def _averaged_back(grad: np.ndarray, aval: Any, _: np.ndarray, output_size: Ints) -> np.ndarray:
    for i, out in reversed(list(enumerate(output_size))):
        axis = len(aval.shape) - len(output_size) + i
        if aval.shape[axis] != out:
            grad = means(*even_bounds(aval.shape[axis], out), aval.shape[axis]).transposed().of_array(grad, axis)
    return grad


def _averaged_shape(x: np.ndarray, output_size: Ints) -> np.ndarray | None:
    return stand_in((*x.shape[: -len(output_size)], *output_size), x.dtype) if are_for_taps(x) and 0 not in output_size else None


ADAPTIVE = Forms(_averaged, _averaged_shape, each=EACH_TAP, planned=True)
ADAPTIVE_BACK = Forms(
    _averaged_back, lambda grad, aval, _, output_size: stand_in(aval.shape, aval.dtype) if are_for_taps(grad) and aval.size else None,
    each=EACH_TAP, planned=True,
)  # fmt: skip


def _largest(x: np.ndarray, output_size: Ints) -> tuple[np.ndarray, np.ndarray]:
    shape = (*x.shape[: -len(output_size)], *output_size)
    made, evenly = (np.empty(shape, x.dtype), np.empty(shape, np.int64)), {"kernel": (), "stride": (), "padding": (), "dilation": ()}
    handlers.pool([contiguous(x)], list(made), how_of_windows(x, of=PLACES, sizes=output_size, **evenly))
    return made


def _largest_shapes(x: np.ndarray, output_size: Ints) -> tuple[np.ndarray, np.ndarray] | None:
    fits = x.dtype.char in "fd" and knows(POOLING) and _count(x.shape) and _count(output_size)
    like = stand_in((*x.shape[: -len(output_size)], *output_size), x.dtype)
    return (like, stand_in(like.shape, np.dtype(np.int64))) if fits else None


def _largest_back(grad: np.ndarray, aval: Any, _: np.ndarray, places: np.ndarray, output_size: Ints) -> np.ndarray:
    made = np.empty(aval.shape, aval.dtype)
    how = how_of_places(grad, places, of=ADDED, spatial=aval.shape[-len(output_size) :])
    handlers.pool([contiguous(grad), contiguous(places)], [made], how)
    return made


def _are_places(grad: np.ndarray, aval: Any, _: np.ndarray, places: np.ndarray, output_size: Ints) -> bool:
    return grad.dtype.char in "fd" and places.dtype == np.int64 and knows(POOLING) and _count(grad.shape) and _count(aval.shape)


ADAPTIVE_MAX = Forms(_largest, _largest_shapes, True, each=_ELEMENT, planned=True)
adaptive_max_grads = gradient(_largest_back, _are_places, _ELEMENT)


# ---------------------------------------------------------------------- sliding blocks


def _blocks(shape: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> tuple[Ints, Ints, list[tuple[Any, ...]]]:
    """Of the blocks of images of this shape: how many there are, the sizes of an image with what is around it, and for each place in a block the
    index of all elements there."""
    sizes, whole = output_sizes(shape[-2:], kernel, stride, padding, dilation), tuple([n + 2 * p for n, p in zip(shape[-2:], padding, strict=True)])
    steps = list(zip(dilation, sizes, stride, strict=True))
    index = [(..., *[slice(a * d, a * d + (m - 1) * s + 1, s) for a, (d, m, s) in zip(k, steps, strict=True)]) for k in np.ndindex(*kernel)]
    return sizes, whole, index


def _columns(x: np.ndarray, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> np.ndarray:
    sizes, whole, index = _blocks(x.shape, kernel_size, dilation, padding, stride)
    *lead, channels = x.shape[:-2]
    if whole != x.shape[-2:]:
        padded = np.zeros((*x.shape[:-2], *whole), x.dtype)
        padded[_inside(x.shape, padding)] = x
        x = padded
    made = np.empty((*lead, channels, len(index), *sizes), x.dtype)
    for i, place in enumerate(index):
        made[..., i, :, :] = x[place]
    return made.reshape(*lead, channels * len(index), math.prod(sizes))


def _columns_shape(x: np.ndarray, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> np.ndarray | None:
    sizes = output_sizes(x.shape[-2:], kernel_size, stride, padding, dilation)
    if not x.size or min(sizes) < 1 or x.ndim not in (3, 4):
        return None
    return stand_in((*x.shape[:-3], x.shape[-3] * math.prod(kernel_size), math.prod(sizes)), x.dtype)


def _added_up(x: np.ndarray, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> np.ndarray:
    """Columns added up where their blocks lie, the last place of a block first, as JAX does."""
    sizes, whole, index = _blocks(output_size, kernel_size, dilation, padding, stride)
    *lead, channels = *x.shape[:-2], x.shape[-2] // len(index)
    blocks, total = x.reshape(*lead, channels, len(index), *sizes), np.zeros((*lead, channels, *whole), x.dtype)
    for i in reversed(range(len(index))):
        total[index[i]] += blocks[..., i, :, :]
    return total[_inside(total.shape[:-2] + tuple(output_size), padding)]


def _added_up_shape(x: np.ndarray, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> np.ndarray | None:
    sizes, count = output_sizes(output_size, kernel_size, stride, padding, dilation), math.prod(kernel_size)
    fits = x.dtype.char in "fd" and x.size and x.ndim in (2, 3) and x.shape[-1] == math.prod(sizes) and x.shape[-2] % count == 0 and min(sizes) > 0
    return stand_in((*x.shape[:-2], x.shape[-2] // count, *output_size), x.dtype) if fits else None


COLUMNS = Forms(_columns, _columns_shape, True, each=_ELEMENT, planned=True)
COLUMNS_BACK = Forms(
    lambda grad, aval, **how: _added_up(grad, aval.shape[-2:], **how), lambda grad, aval, **how: _added_up_shape(grad, aval.shape[-2:], **how),
    each=_ELEMENT, planned=True,
)  # fmt: skip
ADDED_UP = Forms(_added_up, _added_up_shape, each=_ELEMENT, planned=True)
ADDED_UP_BACK = Forms(
    lambda grad, aval, output_size, **how: _columns(grad, **how), lambda grad, aval, output_size, **how: _columns_shape(grad, **how),
    True, each=_ELEMENT, planned=True,
)  # fmt: skip
