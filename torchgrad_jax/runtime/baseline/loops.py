"""Primitives of our own by loops of C's, where there are these: the largest elements of windows, images at points, sums of a few elements along a
dimension, softmax and standardization of rows, the steps of an LSTM, attention, what is folded along a dimension, read and written at places there
and selected from its order, groups of channels, and paths that spell a target (`compiling/primitives.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
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
    """What the loop is told of images of such an aval and the points where they are sampled. of: whether values are asked for, 0, or the gradients of
    the images, 1, or of the points, 2."""
    points = math.prod(grid.shape[1:-1])
    return np.array([points, of, interpolation_mode, padding_mode, align_corners, *image.shape], np.int64)


def _cost_of_points(eqn: Any) -> float:
    image, grid = eqn.invars[0].aval, eqn.invars[1].aval
    return 3_000.0 + grid.size // 2 * (_POINT + _SAMPLE * image.shape[1])


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


def how_of_attention(*operands: Any, is_causal: bool, scale: float) -> np.ndarray:
    """What the loop is told of query, key and value of such avals, in front of which the gradient has the output's, and behind them the weights."""
    query, key = operands[len(operands) // 5 :][:2]  # the gradient alone has five
    return np.array([*query.shape[:3], key.shape[2], query.shape[3], int(is_causal), int(np.float32(scale).view(np.int32)), 0, 0], np.int64)


def _cost_of_attention(eqn: Any) -> float:
    samples, heads, queries, keys, width = how_of_attention(*[v.aval for v in eqn.invars], **eqn.params).tolist()[:5]
    products = 2 * len(eqn.outvars)  # of the gradient three more
    weights = samples * heads * queries * keys
    return products * product(samples * heads, queries, width, keys, np.dtype(np.float32)) / 2 + 2 * _GATE * weights


def _with_heads(x: Any) -> Any:
    """The array, or a copy of it, such that features are next to each other and rows do not overlap."""
    return x if _are_heads(x.shape, x.strides) else np.ascontiguousarray(x)


@lru_cache(4096)
def _are_heads(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    row, feature = strides[2:]
    return feature == 4 and row >= shape[3] * feature and strides[0] >= 0 <= strides[1]


def _lying_as(x: Any) -> Any:
    """A new array (samples, heads, rows, features) whose first three dimensions are in memory in the order that those of `x` are."""
    shape, order = _lying(x.shape, x.strides)
    return np.empty(shape, x.dtype).transpose(order)


@lru_cache(4096)
def _lying(shape: tuple[int, ...], steps: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of which shape an array lies in memory, and the order in which its dimensions are then those of the given shape."""
    order = sorted(range(3), key=lambda d: (-steps[d], d))
    return tuple([shape[d] for d in (*order, 3)]), (order.index(0), order.index(1), order.index(2), 3)


class Attention:
    """The function of a step that is attention, which reads heads where they lie. how: what the loop is told; weights: their shape."""

    __slots__ = ("how", "weights")

    def __init__(self, how: np.ndarray, weights: tuple[int, ...]) -> None:
        self.how, self.weights = how, weights

    def __call__(self, query: Any, key: Any, value: Any, mask: Any = None, drop: Any = None) -> Any:
        made, weights = [_lying_as(query)], np.empty(self.weights, np.float32)
        given = [_with_heads(query), _with_heads(key), _with_heads(value)]
        handlers.attend(given, made, weights, self.how, *[None if x is None else contiguous(x) for x in (mask, drop)])
        return [*made, weights]


class AttentionGrad:
    """The function of a step that is its gradient."""

    __slots__ = ("how",)

    def __init__(self, how: np.ndarray) -> None:
        self.how = how

    def __call__(self, *given: Any) -> Any:
        return self.into([None, None, None], *given)

    def into(self, made: list[Any], grad: Any, query: Any, key: Any, value: Any, weights: Any, mask: Any = None, drop: Any = None) -> list[Any]:
        """The gradients, written into these arrays, and into new ones for None."""
        made = [_lying_as(of) if array is None else array for array, of in zip(made, (query, key, value), strict=True)]
        given = [_with_heads(grad), _with_heads(query), _with_heads(key), _with_heads(value)]
        handlers.attend(given, made, contiguous(weights), self.how, *[None if x is None else contiguous(x) for x in (mask, drop)])
        return made


# What `how` says of attention by hand (TJ_SCORES_DIVIDED ...): scores are divided by the scale; the softmax is as that of rows; the mask fills where
# it is true, or keeps there; rows that are masked altogether are 0.
DIVIDED, AS_THEY_ARE, FILLED, KEPT, SAFE = 1, 2, 4, 8, 16
_SCALE, _FILL = 6, 8


def how_of_heads(query: tuple[int, ...], key: tuple[int, ...], told: int) -> np.ndarray:
    """What the loop is told of attention by hand, of these shapes."""
    one = int(np.float32(1).view(np.int32))
    return np.array([*query[:3], key[2], query[3], 0, one, told, 0], np.int64)


class ByHand:
    """The function of steps that are attention, or `back` its gradient: given as much as these, and then, if there are such, what scores are `scaled`
    by, what they are `filled` with, what `dropped` weights are multiplied with, and a mask."""

    __slots__ = ("how", "back", "scaled", "filled", "dropped")

    def __init__(self, how: np.ndarray, back: bool, scaled: bool, filled: bool, dropped: bool) -> None:
        self.how, self.back, self.scaled, self.filled, self.dropped = how, back, scaled, filled, dropped

    def __call__(self, *given: Any) -> Any:
        if self.back:
            return self.into([None, None, None], *given)
        (query, key, value), (how, mask, drop) = given[:3], self._told(given[3:])
        return Attention(how, (*query.shape[:3], key.shape[2]))(query, key, value, mask, drop)

    def into(self, made: list[Any], *given: Any) -> list[Any]:
        """The gradients, written into these arrays, and into new ones for None."""
        (grad, query, key, value, weights), (how, mask, drop) = given[:5], self._told(given[5:])
        return AttentionGrad(how).into(made, grad, query, key, value, weights, mask, drop)

    def _told(self, given: Sequence[Any]) -> tuple[np.ndarray, Any, Any]:
        """How it is, with what is known when it is run, the mask, and what drops."""
        how, others = self.how.copy(), iter(given)
        if self.scaled:
            how[_SCALE] = next(others).view(np.int32)
        if self.filled:
            how[_FILL] = next(others).view(np.int32)
        drop = next(others) if self.dropped else None
        return how, next(others, None), drop


class SideBySide:
    """The function of a step that makes attention's gradients, and after them an array of such a shape of which some are parts. parts: for each, None
    for a new array, or the index of the part and what is then done to it, one after the other."""

    __slots__ = ("of", "shape", "parts")

    def __init__(self, of: AttentionGrad | ByHand, shape: tuple[int, ...], parts: Sequence[tuple[tuple[slice, ...], list[Any]] | None]) -> None:
        self.of, self.shape, self.parts = of, shape, parts

    def __call__(self, *given: Any) -> list[Any]:
        whole = np.empty(self.shape, np.float32)
        return [*self.of.into([None if part is None else self.part(whole, *part) for part in self.parts], *given), whole]

    @staticmethod
    def part(whole: Any, index: tuple[slice, ...], moves: Sequence[Any]) -> Any:
        """A part of an array."""
        found = whole[index]
        for move in moves:
            found = move(found)
        return found


@rule("attention", cost=_cost_of_attention)
def _attention(eqn: Any) -> Any:
    return Attention(how_of_attention(*[v.aval for v in eqn.invars], **eqn.params), eqn.outvars[1].aval.shape)


@rule("attention_grad", cost=_cost_of_attention)
def _attention_grad(eqn: Any) -> Any:
    return AttentionGrad(how_of_attention(*[v.aval for v in eqn.invars], **eqn.params))


# ---------------------------------------------------------------------- along a dimension

# In the order of the numbers by which C tells them apart, and what an element takes.
LOOPS = {
    "running_sum": 1.0, "running_product": 1.0, "running_product_grad": 3.0, "running_log_sum": 25.0, "running_log_sum_grad": 12.0,
    "running_max": 1.5, "running_min": 1.5, "pick_along": 1.0, "put_along": 1.5, "select_along": 8.0,
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
    return 3_000.0 + how[2] * how[3] * (12.0 * (2 * how[5] + 1) + how[4])


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
