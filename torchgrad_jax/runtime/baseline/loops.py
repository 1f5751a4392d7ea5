"""Primitives of our own by loops of C's, where there are these: the largest elements of windows, images at points, sums of a few elements along a
dimension, softmax and standardization of rows, the steps of an LSTM, what is folded along a dimension, read and written at places there
and selected from its order, groups of channels, and paths that spell a target (`compiling/primitives.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.carrying import ALONG, ROWS, TIMES, Loop
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.cost import CHEAP, product, weight
from torchgrad_jax.runtime.baseline.rules import rule
from torchgrad_jax.runtime.native import handlers

# An element of the images, and one of the windows beyond the first few; one that has a place; a point, and each of its channels; an element
# of a sum; a gate's function of one sum, and its derivative.
_ELEMENT, _OF_WINDOW, _PLACE, _POINT, _SAMPLE, _TAP, _GATE = 0.4, 0.6, 1.0, 6.0, 2.0, 0.5, 1.5

Ints = tuple[int, ...]


# What is asked for of windows: their largest elements; these and their places; given the largest elements' gradient, that of what they are of. Or
# what becomes of elements that have places, added up or put there; or what is there.
VALUES, PLACES, GRADIENT, ADDED, PUT, TAKEN = range(6)


def even_bounds(n: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the `out` windows that cover `n` elements begin and end: floor(i * n / out) and ceil((i + 1) * n / out)."""
    i = np.arange(out)
    return i * n // max(out, 1), -((i + 1) * -n // max(out, 1))


def how_of_windows(x: Any, *grad: Any, of: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, sizes: Ints) -> np.ndarray:
    """What the loops are told of windows of the last dimensions of such an aval: `sizes` of them. kernel: empty where they cover these evenly."""
    spatial = x.shape[-len(sizes) :]
    if kernel:
        return _how(x, of, spatial, sizes, list(zip(kernel, stride, padding, dilation, strict=True)))
    bounds = [np.stack(even_bounds(*numbers), 1).ravel() for numbers in zip(spatial, sizes, strict=True)]
    return np.concatenate([_how(x, of, spatial, sizes, [_BOUND] * len(sizes)), *bounds])


def how_within(x: Any, bounds: Any, *, kernel: Ints, sizes: Ints) -> np.ndarray:
    """What the loops are told of windows that begin and end where an operand says."""
    return _how(x, PLACES, x.shape[-len(sizes) :], sizes, [_BOUND] * len(sizes))


def how_of_places(x: Any, places: Any, *, of: int, spatial: Ints) -> np.ndarray:
    """What the loops are told of elements of such an aval that have places in the last dimensions of what becomes of them, or that are there:
    `spatial`."""
    return _how(x, of, spatial, places.shape[-len(spatial) :], [_ALONE] * len(spatial))


# The kernel's size, stride, padding and dilation of windows that are single elements, and of those that have bounds.
_ALONE, _BOUND = (1, 1, 0, 1), (0, 1, 0, 1)


def _how(x: Any, of: int, spatial: Ints, sizes: Ints, each: list[Ints]) -> np.ndarray:
    missing, volumes = 3 - len(spatial), math.prod(x.shape[: -len(spatial)])
    lead = (1,) * missing
    return np.array([x.dtype.itemsize, of, volumes, *lead, *spatial, *lead, *sizes, *[n for one in [_ALONE] * missing + each for n in one]], np.int64)


def _cost_of_windows(eqn: Any) -> float:
    x, sizes, kernel = eqn.invars[0].aval, eqn.params["sizes"], eqn.params["kernel"]
    windows = x.size // math.prod(x.shape[-len(sizes) :]) * math.prod(sizes)
    beyond = max(math.prod(kernel) - 4, 0) if kernel else 0
    return 3_000.0 + (_ELEMENT * x.size + _OF_WINDOW * windows * beyond) * x.dtype.itemsize / 4


def _cost_of_places(eqn: Any) -> float:
    return 3_000.0 + _PLACE * eqn.invars[1].aval.size + CHEAP * eqn.outvars[0].aval.size


def _pooled(how: np.ndarray, avals: list[Any]) -> Any:
    def pool(*given: Any) -> Any:
        made = [np.empty(aval.shape, aval.dtype) for aval in avals]
        handlers.pool([contiguous(x) for x in given], made, how)
        return made

    return pool


@rule("max_pool", cost=_cost_of_windows, fresh=True)
def _largest(eqn: Any) -> Any:
    return _pooled(how_of_windows(*[v.aval for v in eqn.invars], **eqn.params), [v.aval for v in eqn.outvars])


@rule("max_pool_within", cost=_cost_of_windows, fresh=True)
def _largest_within(eqn: Any) -> Any:
    return _pooled(how_within(*[v.aval for v in eqn.invars], **eqn.params), [v.aval for v in eqn.outvars])


@rule("at_places", cost=_cost_of_places, fresh=True)
def _at_places(eqn: Any) -> Any:
    return _pooled(how_of_places(*[v.aval for v in eqn.invars], **eqn.params), [v.aval for v in eqn.outvars])


def how_of_points(image: Any, grid: Any, *grad: Any, of: int, interpolation_mode: int, padding_mode: int, align_corners: bool) -> np.ndarray:
    """What the loop is told of images of such an aval, or volumes, and the points where they are sampled. of: whether values are asked for, 0, or the
    gradients of the images, 1, or of the points, 2."""
    points, dims = math.prod(grid.shape[1:-1]), image.ndim - 2
    shape = *image.shape[:2], *(1,) * (3 - dims), *image.shape[2:]
    return np.array([points, of, interpolation_mode, padding_mode, align_corners, dims, *shape], np.int64)


def _cost_of_points(eqn: Any) -> float:
    return cost_of_points(eqn.invars[0].aval, eqn.invars[1].aval)


def cost_of_points(image: Any, grid: Any) -> float:
    """What it takes to sample images of such an aval, in nanoseconds."""
    dims = image.ndim - 2
    return 3_000.0 + grid.size // dims * (_POINT * dims / 2 + _SAMPLE * 2 ** (dims - 2) * image.shape[1])


@rule("grid_sample", cost=_cost_of_points, fresh=True)
def _sampled(eqn: Any) -> Any:
    how, shape = how_of_points(*[v.aval for v in eqn.invars], **eqn.params), eqn.outvars[0].aval.shape

    def sample(image: Any, grid: Any, grad: Any = None) -> Any:
        made = np.empty(shape, np.float32)
        handlers.sample(contiguous(image), contiguous(grid), None if grad is None else contiguous(grad), made, how)
        return [made]

    return sample


def how_of_taps(x: Any, *, taps: Any, axis: int) -> np.ndarray:
    """What the loop is told of sums along a dimension of an array of such an aval. taps: has `index`, `weight` and `there` of `resampling.Taps`."""
    index = taps.index if taps.there is None else np.where(taps.there, taps.index, -1)
    sizes = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    weight = np.zeros(0, np.float32) if taps.weight is None else np.ascontiguousarray(taps.weight.T, np.float32)
    numbers = [*sizes, *index.shape, int(taps.weight is not None)]
    return np.concatenate([np.array(numbers, np.int64), index.T.astype(np.int64).ravel(), weight.view(np.uint32).astype(np.int64).ravel()])


def _cost_of_taps(eqn: Any) -> float:
    return 3_000.0 + _TAP * eqn.outvars[0].aval.size * eqn.params["taps"].index.shape[1]


@rule("resample", cost=_cost_of_taps, fresh=True)
def _resampled(eqn: Any) -> Any:
    how, shape = how_of_taps(eqn.invars[0].aval, **eqn.params), eqn.outvars[0].aval.shape

    def resample(x: Any) -> Any:
        made = np.empty(shape, np.float32)
        handlers.resample(contiguous(x), made, how)
        return [made]

    return resample


# What is asked for of rows, and what an element of it takes.
SOFTMAX, LOG_SOFTMAX, SOFTMAX_GRAD, LOG_SOFTMAX_GRAD, LAYER, LAYER_GRAD, LAYER_WEIGHT = range(7)
MOMENTS, CHANNELS, CHANNELS_GRAD, SAFE_SOFTMAX = range(7, 11)
_OF_ROWS = (0.8, 0.7, 0.3, 0.6, 0.5, 0.6, 0.3, 0.3, 0.3, 0.8, 0.9)


def are_for_rows(*arrays: Any) -> bool:
    """Whether the loop is for such arrays, None among them for those that are missing."""
    return all([a is None or (a.dtype == np.float32 and a.size > 0) for a in arrays])


def how_of_rows(x: Any, *others: Any, of: int, length: int, eps: float, parameters: int, inner: int) -> np.ndarray:
    """What the loop is told of rows of so many elements, `inner` from one another, or of so many channels. eps: what a variance is raised by;
    parameters: 1 where there is a weight, 3 with a bias."""
    return np.array([of, x.size // (length * inner), length, int(np.float32(eps).view(np.uint32)), parameters, inner], np.int64)


def _cost_of_rows(eqn: Any) -> float:
    return 3_000.0 + _OF_ROWS[eqn.params["of"]] * eqn.invars[0].aval.size


@rule("rowwise", cost=_cost_of_rows, fresh=True)
def _by_rows(eqn: Any) -> Any:
    return Loop(ROWS, how_of_rows(*[v.aval for v in eqn.invars], **eqn.params), _results(eqn))


def how_of_steps(*operands: Any, reverse: bool) -> np.ndarray:
    """What the loop is told of an LSTM's operands, of such avals: times, batch, width, and whether the last time comes first."""
    times, batch, gates = operands[0].shape
    return np.array([times, batch, gates // 4, int(reverse)], np.int64)


def _cost_of_steps(eqn: Any) -> float:
    times, batch, width, _ = how_of_steps(eqn.invars[0].aval, reverse=False).tolist()
    return times * (_GATE * 4 * batch * width + product(1, batch, width, 4 * width, np.dtype(np.float32)))


@rule("lstm_steps", "lstm_steps_grad", cost=_cost_of_steps, fresh=True)
def _steps(eqn: Any) -> Any:
    return Loop(TIMES, how_of_steps(eqn.invars[0].aval, **eqn.params), _results(eqn))


# ---------------------------------------------------------------------- along a dimension

# In the order of the numbers by which C tells them apart, and what an element takes.
LOOPS = {
    "running_sum": 1.0, "running_product": 1.0, "running_product_grad": 3.0, "running_log_sum": 25.0, "running_log_sum_grad": 12.0,
    "running_max": 1.5, "running_min": 1.5, "pick_along": 1.0, "put_along": 1.5, "select_along": 8.0,
    "first_max": 1.0, "first_min": 1.0,
}  # fmt: skip
OTHER_LOOPS = ("group", "group_grad", "spell", "spell_grad")
_NUMBERS = {name: number for number, name in enumerate((*LOOPS, *OTHER_LOOPS))}
# How elements are put to the same place, and which element of an order is selected: the numbers that `put_along` and `select_along` are told.
LAST, SUM, MOST, LEAST = range(4)
AT_PLACE, MEDIAN, MEDIAN_OF_NUMBERS = range(3)


def how_along(name: str, x: Any, *others: Any, dim: int, length: int, told: tuple[int, ...]) -> np.ndarray:
    """What the loop is told of arrays of which the first one is such an aval. dim: negative; of so many elements. told: what the loop alone is."""
    first = x.ndim + dim
    return np.array([_NUMBERS[name], x.dtype.itemsize, math.prod(x.shape[:first]), length, math.prod(x.shape[first + 1 :]), *told], np.int64)


def _cost(eqn: Any) -> float:
    aval = max([v.aval for v in (*eqn.invars, *eqn.outvars)], key=lambda aval: aval.size)
    return 3_000.0 + LOOPS[eqn.primitive.name] * aval.size * weight(eqn.invars[0].aval.dtype)


@rule(*LOOPS, cost=_cost, fresh=True)
def _along(eqn: Any) -> Any:
    how = how_along(eqn.primitive.name, *[v.aval for v in eqn.invars], **eqn.params)
    return Loop(ALONG, how, _results(eqn))


def _results(eqn: Any) -> list[tuple[tuple[int, ...], Any]]:
    return [(v.aval.shape, v.aval.dtype) for v in eqn.outvars]


def how_of_groups(name: str, x: Any, *others: Any, groups: int, eps: float) -> np.ndarray:
    """What the loop is told of the channels of images of such an aval, in so many groups. eps: what a variance is raised by."""
    samples, channels, *sizes = x.shape
    sizes_of = samples * groups, channels // groups, math.prod(sizes)
    return np.array([_NUMBERS[name], x.dtype.itemsize, *sizes_of, groups, int(np.float64(eps).view(np.int64))], np.int64)


def _cost_of_groups(eqn: Any) -> float:
    aval = eqn.invars[0].aval
    return 3_000.0 + 0.6 * aval.size * weight(aval.dtype)


@rule("group", "group_grad", cost=_cost_of_groups, fresh=True)
def _groups(eqn: Any) -> Any:
    how = how_of_groups(eqn.primitive.name, *[v.aval for v in eqn.invars], **eqn.params)
    return Loop(ALONG, how, _results(eqn))


def how_of_spelling(name: str, *avals: Any, blank: int, zero_infinity: bool = False) -> np.ndarray:
    """What the loop is told of log-probabilities (times, samples, classes) and of targets that are at most so long; in front of which the gradient
    has one operand more."""
    given, labels = avals[name == "spell_grad" :][:2]
    return np.array([_NUMBERS[name], given.dtype.itemsize, *given.shape, labels.shape[1], blank, int(zero_infinity)], np.int64)


def _cost_of_spelling(eqn: Any) -> float:
    how = how_of_spelling(eqn.primitive.name, *[v.aval for v in eqn.invars], **eqn.params).tolist()
    return cost_of_spelling(how[2:5], how[5])


def cost_of_spelling(shape: Sequence[int], longest: int) -> float:
    """What log-probabilities of this shape take, of targets that are at most so long, in nanoseconds."""
    times, samples, classes = shape
    return 3_000.0 + times * samples * (12.0 * (2 * longest + 1) + classes)


@rule("spell", "spell_grad", cost=_cost_of_spelling, fresh=True)
def _spelling(eqn: Any) -> Any:
    how = how_of_spelling(eqn.primitive.name, *[v.aval for v in eqn.invars], **eqn.params)
    return Loop(ALONG, how, _results(eqn))


def are_beside(shape: Ints, index: Ints, dim: int) -> bool:
    """Whether arrays of these shapes differ along `dim` alone, so that each index is at its own place in the other dimensions."""
    dim %= max(len(shape), 1)
    return shape[:dim] == index[:dim] and shape[dim + 1 :] == index[dim + 1 :]


def along(name: str, *arrays: Any, dim: int, length: int, told: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """The one result, of this shape, of the loop of arrays that are not empty; None where it is not for them."""
    x = arrays[0]
    if x.dtype.char not in "fd" or any([a.dtype not in (x.dtype, np.int64) for a in arrays]):
        return None
    made = np.empty(shape, x.dtype)
    how = how_along(name, x, dim=dim % x.ndim - x.ndim, length=length, told=told)
    return made if handlers.loop([contiguous(a) for a in arrays], [made], how) else None
