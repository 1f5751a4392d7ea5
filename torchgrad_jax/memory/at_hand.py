"""Elements of memory that lies on the host: written to where they lie, added, multiplied and compared as the numbers that they are.

Tables, flags, boards and counters of ordinary code are written to an element at a time and looked at in between. To record that would make a program
of each step, and copy all of the memory for each write. What is done here at once has the bits of such a program: operations that are rounded once.

An array is immutable while anybody can tell: what one Value alone holds, and one tensor alone holds that Value, nobody can. Compiled where there is a
compiler (`torchgrad_jax/_typed`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.native import arrays as of_c
from torchgrad_jax.runtime.observing import observer
from torchgrad_jax.runtime.recorder import Recorder
from torchgrad_jax.runtime.value import Value, aval_of, constant, watches

_ndarray = np.ndarray
_observed, _modes = vars(observer), vars(modes)
# Integers up to this are floats, too.
_MOST_EXACT = 1 << 53
# Operators of two numbers that are rounded once: float32's are those of float64 rounded again, which is the same (Figueroa, "When is double
# rounding innocuous?", 1995).
OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    # of two zeros, 0.0 is the larger one
    "minimum": lambda a, b: a if a < b or a != a else b if a != b or a else -(-a - b),
    "maximum": lambda a, b: a if a > b or a != a else b if a != b or a else a + b,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
# The operations that change a part of memory in place, each at its number for C.
CHANGES: dict[str, Any] = {"add": (0, np.add), "sub": (1, np.subtract), "mul": (2, np.multiply), "div": (3, np.true_divide)}
_SET = 4
# So many elements of a part are changed at once; more are recorded, as they may be with others.
MOST_CHANGED = 1 << 14
OF_ONE: dict[str, Callable[[Any], Any]] = {"clone": operator.pos, "neg": operator.neg, "abs": abs}
_BOOL = np.dtype(np.bool_)
_TRUTHS = tuple([np.array(truth) for truth in (False, True)])
for _truth in _TRUTHS:
    _truth.setflags(write=False)


def array_of(rec: Recorder, whole: Value) -> Any:
    """The array that a content is, if it lies on the host and what is done with it need not be recorded: nobody traces, watches, or has noted what
    is to be written back. None otherwise, and where all is to be run by XLA."""
    array = whole.array
    if type(array) is not _ndarray or rec.rare or rec.epoch.lines or watches or _observed["active"] or type(rec) is not Recorder:
        return None
    return array if whole.aval.device is CPU and _modes["execution"] == "fused" and (_modes["baseline"] or _modes["without_xla"]) else None


def number_for(value: Any, kind: str) -> Any:
    """A Python number as an array of a dtype, by NumPy's character, takes it, which rounds it once, as a program does. None where it may not fit."""
    given = type(value)
    if kind == "f" or kind == "d":
        if given is float:
            return value if kind == "d" or -1e38 < value < 1e38 or value != value or value in (_INF, -_INF) else None
        return value if given is bool or (given is int and -_MOST_EXACT <= value <= _MOST_EXACT) else None
    if kind == "?":
        return value if given is bool else None
    if given is bool or (given is int and 0 <= value <= 127):
        return value
    return value if given is int and kind in "ilq" and -(1 << 31) <= value < 1 << 31 else None


_INF = float("inf")


def rounded(value: Any, kind: str) -> Any:
    """`number_for` as an operand: as what is stored of it. None where that is none of these."""
    found = number_for(value, kind)
    return found if found is None or kind != "f" else float(_float32(found))


_float32 = np.float32


def computed(name: str, a: Any, b: Any, aval: Any) -> Value | None:
    """An operation of two numbers that are elements of one dtype, of which `aval` is a scalar, or of one: `b` is None. None where it is none of those
    that are rounded once, or may come to what such a number is not."""
    dtype = aval.dtype
    kind = dtype.char
    compared = COMPARISONS.get(name)
    if compared is not None:
        return constant(_TRUTHS[compared(a, b)], aval_of((), _BOOL))
    if b is None:
        if kind == "?" and name != "clone":
            return None
        found = a if kind == "?" else number_for(OF_ONE[name](a), kind)
    else:
        function = OF_TWO.get(name)
        if function is None or kind == "?" or (function is operator.truediv and (kind not in "fd" or b == 0)):
            return None
        found = number_for(function(a, b), kind)
    if found is None:
        return None
    return constant(np.array(found, dtype), aval)


def part_of(memory: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """The array that a view is, by strides and from an offset in elements, of an array whose elements lie in row-major order."""
    size = memory.itemsize
    if 0 in shape:  # it may begin behind the last element
        return _ndarray(shape, memory.dtype)
    return _ndarray(shape, memory.dtype, memory, offset * size, tuple([n * size for n in strides]))


def change(memory: Any, name: str, place: tuple[Any, ...], given: Any, context: Any) -> None:
    """Change the part of an array that `part_of` makes of a place, its shape, strides and offset, by an array of its shape and dtype, which does not
    overlap it, or a number. context: of `contextvars`, in which NumPy computes without complaints."""
    shape, strides, offset = place
    number, function = CHANGES[name]
    if not of_c.changed(memory, number, shape, strides, offset, given):
        part = part_of(memory, shape, strides, offset)
        context.run(function, part, given, part)


def put(memory: Any, place: tuple[Any, ...], given: Any) -> None:
    """Set the part of an array as `change` changes it."""
    shape, strides, offset = place
    if not of_c.changed(memory, _SET, shape, strides, offset, given):
        part_of(memory, shape, strides, offset)[...] = given


def places_in(array: Any) -> tuple[Any, ...]:
    """What `np.nonzero` gives, which takes six times as long where there are several dimensions."""
    if array.ndim < 2:
        return array.nonzero()
    flat, found = array.ravel().nonzero()[0], []
    for n in array.shape[:0:-1]:
        above = flat // n
        found.append(flat - above * n)
        flat = above
    return (flat, *found[::-1])


def taken(array: Any, holds: Any) -> Any:
    """What is where booleans hold, of an array's shape or its first dimensions'; NumPy takes five times as long for such an index."""
    return array.reshape(holds.size, *array.shape[holds.ndim :]).take(holds.ravel().nonzero()[0], 0)


def writable(whole: Value, holders: int) -> Any:
    """The array that the content `whole` is, to be written to: that itself where nobody else can tell, else a copy. holders: how many hold `whole`
    that will hold the new content in its place, beside the caller."""
    if getrefcount(whole) <= _HELD + holders and getrefcount(whole.array) <= _ALONE and whole.array.base is None:
        array = whole.array
    else:
        array = whole.array.copy()
    of_c.set_writable(array, True)
    return array


def _references(whole: Value) -> tuple[int, int]:
    return getrefcount(whole), getrefcount(whole.array)


def _references_of_one() -> tuple[int, int]:
    whole = Value()
    whole.array = np.zeros(1)
    return _references(whole)


# How many references `getrefcount` sees of a Value that the caller alone has, and of its array: newer interpreters count borrowed ones otherwise.
_HELD, _ALONE = _references_of_one()
