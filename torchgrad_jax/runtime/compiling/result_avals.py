"""Shapes and dtypes of what JAX's common primitives give, told without asking JAX, which takes 30 to 100 us for what it has not met before.

A rule is called with the operands' avals and the parameters. It returns one of these avals, or a shape and a dtype, or None, which says that JAX is
to be asked: about operands that do not fit together, which it refuses, weakly typed ones, and whatever is rare.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

Found = Any  # an aval, a pair of shape and dtype, or None
Rule = Callable[[Sequence[Any], dict[str, Any]], Found]

_BOOL = np.dtype(bool)
# Kinds of dtypes; bfloat16 is of NumPy's kind V.
_FLOATING, _INTEGER, _LOGICAL, _NUMBER, _SIGNED, _ANY = "fV", "iu", "biu", "iufcV", "ifV", "biufcV"

rules: dict[Any, Rule] = {}


def _rule(*primitives: Any) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        rules.update(dict.fromkeys(primitives, rule))
        return rule

    return enter


def _alike(avals: Sequence[Any], kinds: str) -> Found:
    """The one aval that all operands have, or what two of them broadcast to, if its dtype is of these kinds. JAX has one object for equal avals."""
    first = avals[0]
    for other in avals[1:]:
        if other is not first:
            return _broadcast_together(first, other, kinds) if len(avals) == 2 else None
    return first if first.dtype.kind in kinds and not first.weak_type else None


def _broadcast_together(a: Any, b: Any, kinds: str) -> Found:
    """Of two, of which one is a number, or which have the same rank."""
    if a.dtype != b.dtype or a.dtype.kind not in kinds or a.weak_type or b.weak_type:
        return None
    if a.shape == () or b.shape == ():
        return a if b.shape == () else b
    if len(a.shape) != len(b.shape) or not all([n == m or n == 1 or m == 1 for n, m in zip(a.shape, b.shape, strict=True)]):
        return None
    return tuple([m if n == 1 else n for n, m in zip(a.shape, b.shape, strict=True)]), a.dtype


def _keeping(kinds: str) -> Rule:
    return lambda avals, parameters: None if parameters.get("out_dtype") is not None else _alike(avals, kinds)


def _comparing(kinds: str) -> Rule:
    def compare(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
        one = _alike(avals, kinds)
        return None if one is None else (one[0] if type(one) is tuple else one.shape, _BOOL)

    return compare


_rule(
    lax.exp_p, lax.exp2_p, lax.expm1_p, lax.log_p, lax.log1p_p, lax.sqrt_p, lax.rsqrt_p, lax.cbrt_p, lax.sin_p, lax.cos_p, lax.tan_p, lax.asin_p,
    lax.acos_p, lax.atan_p, lax.atan2_p, lax.sinh_p, lax.cosh_p, lax.tanh_p, lax.asinh_p, lax.acosh_p, lax.atanh_p, lax.logistic_p, lax.erf_p,
    lax.erfc_p, lax.erf_inv_p, lax.lgamma_p, lax.digamma_p, lax.floor_p, lax.ceil_p, lax.round_p, lax.nextafter_p, lax.pow_p,
)(_keeping(_FLOATING))  # fmt: skip
_rule(lax.add_p, lax.sub_p, lax.mul_p, lax.div_p, lax.neg_p, lax.sign_p)(_keeping(_NUMBER))
_rule(lax.abs_p)(_keeping(_SIGNED))
_rule(lax.max_p, lax.min_p)(_keeping("biufV"))
_rule(lax.rem_p)(_keeping("iufV"))
_rule(lax.square_p)(_keeping("iufcV"))
_rule(lax.integer_pow_p)(_keeping("fcV"))  # of integers JAX refuses some
_rule(lax.and_p, lax.or_p, lax.xor_p, lax.not_p)(_keeping(_LOGICAL))
_rule(lax.shift_left_p, lax.shift_right_arithmetic_p, lax.shift_right_logical_p)(_keeping(_INTEGER))
_rule(lax.eq_p, lax.ne_p)(_comparing(_ANY))
_rule(lax.lt_p, lax.le_p, lax.gt_p, lax.ge_p)(_comparing("biufV"))
_rule(lax.is_finite_p)(_comparing(_FLOATING))
_rule(lax.copy_p)(_keeping(_ANY))


@_rule(lax.select_n_p)
def _selected(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    which, one = avals[0], avals[1]
    fits = one is avals[-1] and not one.weak_type and which.dtype == _BOOL and len(avals) == 3 and which.shape in ((), one.shape)
    return one if fits else None


@_rule(lax.convert_element_type_p)
def _converted(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    (x,) = avals
    dtype = parameters["new_dtype"]
    if x.weak_type or parameters["weak_type"] or parameters["sharding"] is not None or (x.dtype.kind == "c" and dtype.kind != "c"):
        return None
    return x.shape, dtype


@_rule(lax.broadcast_in_dim_p)
def _broadcast(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    if len(avals) > 1 or avals[0].weak_type or parameters["sharding"] is not None:
        return None
    (x,), shape, dimensions = avals, parameters["shape"], parameters["broadcast_dimensions"]
    last = -1
    for size, dimension in zip(x.shape, dimensions, strict=False):
        if not last < dimension < len(shape) or size not in (1, shape[dimension]):
            return None
        last = dimension
    return (shape, x.dtype) if len(dimensions) == len(x.shape) and _are_sizes(shape) else None


@_rule(lax.reshape_p)
def _reshaped(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    shape = parameters["new_sizes"]
    if len(avals) > 1 or avals[0].weak_type or parameters["dimensions"] is not None or parameters["sharding"] is not None:
        return None
    return (shape, avals[0].dtype) if _are_sizes(shape) and math.prod(shape) == math.prod(avals[0].shape) else None


@_rule(lax.squeeze_p)
def _squeezed(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    (x,), dimensions = avals, parameters["dimensions"]
    rest = _without(x, dimensions)
    return None if rest is None or any([x.shape[d] != 1 for d in dimensions]) else (rest, x.dtype)


@_rule(lax.transpose_p)
def _transposed(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    (x,), order = avals, parameters["permutation"]
    if x.weak_type or type(order) is not tuple or sorted(order) != list(range(len(x.shape))):
        return None
    return tuple([x.shape[i] for i in order]), x.dtype


@_rule(lax.slice_p)
def _sliced(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    (x,), starts, limits, strides = avals, parameters["start_indices"], parameters["limit_indices"], parameters["strides"]
    if x.weak_type or len(starts) != len(x.shape) or len(limits) != len(x.shape) or strides is not None or not _are_sizes((*starts, *limits)):
        return None
    fits = all([start <= limit <= n for start, limit, n in zip(starts, limits, x.shape, strict=True)])
    return (tuple([limit - start for start, limit in zip(starts, limits, strict=True)]), x.dtype) if fits else None


@_rule(lax.concatenate_p)
def _joined(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    first, dimension = avals[0], parameters["dimension"]
    rest = _without(first, (dimension,))
    if rest is None or not all([x.dtype == first.dtype and len(x.shape) == len(first.shape) and _without(x, (dimension,)) == rest for x in avals]):
        return None
    shape = list(first.shape)
    shape[dimension] = sum([x.shape[dimension] for x in avals])
    return tuple(shape), first.dtype


def _reducing(kinds: str) -> Rule:
    def reduce(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
        (x,) = avals
        rest = _without(x, parameters["axes"])
        return None if rest is None or x.dtype.kind not in kinds or parameters.get("out_sharding") is not None else (rest, x.dtype)

    return reduce


_rule(lax.reduce_sum_p, lax.reduce_prod_p)(_reducing("iufcV"))
_rule(lax.reduce_max_p, lax.reduce_min_p)(_reducing("iufV"))
_rule(lax.reduce_or_p, lax.reduce_and_p)(_reducing("b"))


@_rule(lax.dot_general_p)
def _multiplied(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    a, b = avals
    (summed, others_summed), (batch, others_batch) = parameters["dimension_numbers"]
    asked = parameters["preferred_element_type"]
    if a.dtype != b.dtype or (asked is not None and asked != a.dtype) or parameters["out_sharding"] is not None or a.dtype.kind not in "iufcV":
        return None
    rest, others = _without(a, (*summed, *batch)), _without(b, (*others_summed, *others_batch))
    if rest is None or others is None or len(batch) != len(others_batch) or len(summed) != len(others_summed):
        return None
    if any([a.shape[i] != b.shape[j] for i, j in zip((*summed, *batch), (*others_summed, *others_batch), strict=True)]):
        return None
    return (*[a.shape[i] for i in batch], *rest, *others), a.dtype


@_rule(lax.rev_p)
def _reversed(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    (x,) = avals
    return x if _without(x, parameters["dimensions"]) is not None else None


@_rule(lax.conv_general_dilated_p)
def _convolved(avals: Sequence[Any], parameters: dict[str, Any]) -> Found:
    x, kernel = avals
    images, kernels, made = parameters["dimension_numbers"]
    asked, groups = parameters["preferred_element_type"], parameters["feature_group_count"]
    if x.weak_type or x.dtype != kernel.dtype or x.dtype.kind not in "fV" or asked not in (None, x.dtype) or parameters["batch_group_count"] != 1:
        return None
    features = kernel.shape[kernels[0]]
    if x.shape[images[1]] != kernel.shape[kernels[1]] * groups or features % groups or not (x.size and kernel.size):
        return None
    shape = [0] * len(made)
    shape[made[0]], shape[made[1]] = x.shape[images[0]], features
    each = zip(images[2:], kernels[2:], made[2:], parameters["window_strides"], parameters["padding"], strict=True)
    for (i, k, at, stride, (before, after)), apart, spread in zip(each, parameters["lhs_dilation"], parameters["rhs_dilation"], strict=True):
        room = (x.shape[i] - 1) * apart + 1 + before + after - ((kernel.shape[k] - 1) * spread + 1)
        if room < 0:
            return None
        shape[at] = room // stride + 1
    return tuple(shape), x.dtype


def _without(x: Any, dimensions: Sequence[int]) -> tuple[int, ...] | None:
    """An aval's shape without these dimensions; None where they are not different ones of it, or it is weakly typed."""
    rank = len(x.shape)
    if x.weak_type or len(set(dimensions)) != len(dimensions) or not all([0 <= d < rank for d in dimensions]):
        return None
    return tuple([n for i, n in enumerate(x.shape) if i not in dimensions])


def _are_sizes(shape: Any) -> bool:
    return type(shape) is tuple and all([type(n) is int and n >= 0 for n in shape])
