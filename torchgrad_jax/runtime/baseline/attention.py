"""Scaled dot-product attention by a loop of C's (`native/attending.pxd`), its gradient, and how programs that say these by hand are told to it
(`merging/attending.py`, `merging/joining.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.cost import product
from torchgrad_jax.runtime.baseline.rules import rule
from torchgrad_jax.runtime.native import handlers

# What a weight takes beside products, once forward and once back.
_WEIGHT = 1.5


def fits_loop(query: Any, key: Any, value: Any) -> bool:
    """Whether the loop is for such operands: of single precision, with as many heads of keys and values, and features of these, as of queries."""
    if not all([x.ndim == 4 and x.dtype == np.float32 and x.size > 0 for x in (query, key, value)]):
        return False
    return key.shape == (*query.shape[:2], key.shape[2], query.shape[3]) and value.shape == key.shape


def how_of_attention(*operands: Any, is_causal: bool, scale: float) -> np.ndarray:
    """What the loop is told of query, key and value of such avals, in front of which the gradient has the output's, and behind them the weights."""
    first = len(operands) // 5  # the gradient alone has five
    query, key = operands[first], operands[first + 1]
    return np.array([*query.shape[:3], key.shape[2], query.shape[3], int(is_causal), int(np.float32(scale).view(np.int32)), 0, 0], np.int64)


def cost_of(*operands: Any, results: int) -> float:
    """What attention, which has two results, or its gradient, which has three, takes of such operands, in nanoseconds."""
    samples, heads, queries, keys, width = how_of_attention(*operands, is_causal=False, scale=1.0).tolist()[:5]
    weights = samples * heads * queries * keys
    return results * product(samples * heads, queries, width, keys, np.dtype(np.float32)) + 2 * _WEIGHT * weights


def _cost_of_attention(eqn: Any) -> float:
    return cost_of(*[v.aval for v in eqn.invars], results=len(eqn.outvars))


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
