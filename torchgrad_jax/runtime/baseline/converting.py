"""Conversions between dtypes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import lanes
from torchgrad_jax.runtime.baseline.blocks import BFLOAT16, SINGLE, converted, widened
from torchgrad_jax.runtime.baseline.chains import NUMBERS
from torchgrad_jax.runtime.baseline.rules import Constant, OfElements, Same, Unknown, is_floating, is_half, rule


@rule("convert_element_type", elementwise=True)
def _convert(eqn: Any) -> Any:
    source, target = eqn.invars[0].aval.dtype, np.dtype(eqn.params["new_dtype"])
    if source == target:
        return Same()
    if hasattr(eqn.invars[0], "val") and target.kind == "c":
        return Constant(np.asarray(eqn.invars[0].val).astype(target))
    if target.kind == "b":
        zero = np.zeros((), SINGLE if is_half(source) else source)
        return lambda x: np.not_equal(widened(x), zero)
    if source.kind == "c" and target.kind != "c":
        part = np.zeros((), source).real.dtype
        convert = _to_integer(part, target) if target.kind in "iu" else (lambda x: x.astype(target, copy=False))
        return lambda x: convert(x.real)
    if is_floating(source) and target.kind in "iu":
        return _to_integer(source, target)
    if source == np.float64 and is_half(target):  # rounded twice, by XLA and by PyTorch
        return lambda x: converted(x.astype(np.float32), target)
    return _converter(target)


@cache
def _converter(target: np.dtype) -> Any:
    """One function for each dtype: so it can be seen that two steps do the same."""
    if is_half(target):
        round_ = lambda x: converted(x, target)  # noqa: E731 - one of several functions of arrays
        NUMBERS[round_] = lanes.COPY
        return round_
    if target.char not in "fd":
        return lambda x: x.astype(target)
    number = target.type  # of a number it takes a tenth of a microsecond

    def convert(x: Any) -> Any:
        return converted(x, target) if x.ndim else number(x)

    of_numbers[convert] = number
    if target == SINGLE:
        NUMBERS[convert] = lanes.COPY
    return convert


# Conversions, by what does the same with a number.
of_numbers: dict[Any, type] = {}
# What is between is exact in float64, and within float32.
_EXACT = 1 << 53


@cache
def _from_python(target: type) -> Any:
    """The conversion of Python's numbers to a floating dtype of NumPy's, which warns of nothing."""

    def converted(n: Any) -> Any:
        if -_EXACT < n < _EXACT:
            return target(n)
        with np.errstate(over="ignore"):
            return target(np.int64(n) if type(n) is int else n)

    return converted


def with_numbers(calls: list[tuple[Any, ...]], places: dict[int, Any]) -> tuple[list[tuple[Any, ...]], dict[int, Any]]:
    """Calls as `carry_out` makes them, without those that do no more than convert a number, and what makes a number from Python's for each place.
    places: what has made them so far. Parts that begin at a number are given Python's own."""
    by_index: Any
    kept, made, touched, uses = [], dict(places), set[int](), _uses(calls, places)
    for i, call in enumerate(calls):
        function, arity, a, b, _, _, out = call
        if arity == 1 and a == out and function in of_numbers and made.get(a) in (np.float64, np.int64) and a not in touched:
            made[a] = _from_python(of_numbers[function])
            continue
        by_index = getattr(getattr(function, "func", None), "by_index", None)
        alone = arity == 2 and places.get(b) is np.int64 and b not in touched
        if by_index is not None and alone and (out == b or not _is_read(uses[b], i)):
            made[b] = int
            call = (by_index(**function.keywords), *call[1:])
        kept.append(call)
        touched.update(call[5], _written_by(call))
    return kept, made


def _written_by(call: tuple[Any, ...]) -> Iterable[int]:
    """The places that a call writes to: a slice stands for several results."""
    out = call[6]
    return range(out.start, out.stop) if type(out) is slice else (out,)


def _uses(calls: list[tuple[Any, ...]], places: Iterable[int]) -> dict[int, list[tuple[int, bool]]]:
    """Which calls read each of these places, or else write to it, and whether they read it."""
    found: dict[int, list[tuple[int, bool]]] = {place: [] for place in places}
    for i, call in enumerate(calls):
        for place in {*call[5], *_written_by(call)}:
            if place in found:
                found[place].append((i, place in call[5]))
    return found


def _is_read(uses: list[tuple[int, bool]], at: int) -> bool:
    """Whether what is in a place will be read after a call."""
    return next((reads for i, reads in uses if i > at), False)


def _to_integer(source: np.dtype, target: np.dtype) -> Any:
    """Conversion as XLA has it: towards zero, to the nearest integer that there is, NaN to 0. Outside the range C leaves it to the processor."""
    info = np.iinfo(target)
    # The smallest powers of two that are out of the range (and no less than -1, which converts to 0), as float64: exact.
    above, below = float(info.max + 1), float(info.min) if info.min else 0.0

    def convert(x: Any) -> Any:
        x = widened(x)
        if not x.size or (x.min() >= below and x.max() < above):  # false where there is a NaN
            return x.astype(target)
        inside = (x > below) & (x < above)
        found = np.where(inside, x, 0).astype(target)
        return np.where(x >= above, np.array(info.max, target), np.where(x <= below, np.array(info.min, target), found))

    return convert


@rule("reduce_precision", elementwise=True)
def _reduce_precision(eqn: Any) -> Any:
    dtype = eqn.outvars[0].aval.dtype
    forms = {(8, 7): BFLOAT16, (5, 10): np.dtype(np.float16), (8, 23): SINGLE, (11, 52): np.dtype(np.float64)}
    rounded = forms.get((eqn.params["exponent_bits"], eqn.params["mantissa_bits"]))
    if rounded is None:
        raise Unknown("reduce_precision")
    return Same() if rounded == dtype else _rounder(rounded, dtype)


@cache
def _rounder(rounded: np.dtype, dtype: np.dtype) -> Any:
    """What rounds an array to another dtype's digits."""
    rounds = lambda x: converted(converted(x, rounded), dtype)  # noqa: E731 - one of several functions of arrays
    if dtype == SINGLE and is_half(rounded):
        NUMBERS[rounds] = lanes.ROUND_BRAIN if rounded == BFLOAT16 else lanes.ROUND_HALF
    return rounds


@rule("bitcast_convert_type")
def _bitcast(eqn: Any) -> Any:
    source, target = eqn.invars[0].aval.dtype, np.dtype(eqn.params["new_dtype"])
    if "b" in (source.kind, target.kind):
        raise Unknown("bits of booleans")
    shape = eqn.outvars[0].aval.shape
    if source.itemsize == target.itemsize:
        return OfElements(lambda x: x.view(target))
    if 0 in shape:
        return lambda x: np.empty(shape, target)
    if source.itemsize < target.itemsize:  # the last dimension becomes one number
        return lambda x: np.ascontiguousarray(x).view(target).reshape(shape)
    return lambda x: np.ascontiguousarray(x)[..., None].view(target).reshape(shape)
