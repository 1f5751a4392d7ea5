"""What a chain (`blocks`) does to a block: loops over arrays, NumPy's here. In compiled modules the same names are loops of C: `lanes.pxd`."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np


def _larger(a: Any, b: Any) -> Any:
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))


def _smaller(a: Any, b: Any) -> Any:
    return np.where((a == 0) & (b == 0), -(-a - b), np.minimum(a, b))


def _sign(a: Any) -> Any:
    return np.copysign(np.sign(a), a)


def _select(which: Any, no: Any, yes: Any) -> Any:
    return np.where(which != 0, yes, no)


def remainder(a: Any, b: Any) -> Any:
    """The remainder with the divisor's sign."""
    found = np.fmod(a, b)
    return np.where((found != 0) & ((found < 0) != (b < 0)), found + b, found)


def floor_divide(a: Any, b: Any) -> Any:
    """The quotient rounded down, consistent with the remainder: as `operators/special.py` has it."""
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    quotient = np.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    down = np.floor(quotient)
    down = np.where(quotient - down > 0.5, down + 1, down)
    exact = a / b
    return np.where(b == 0, exact, np.where(quotient == 0, np.copysign(np.zeros_like(down), exact), down))


def quotient(a: Any, b: Any) -> Any:
    """The quotient rounded towards 0."""
    return np.trunc(np.true_divide(a, b))


def direction(a: Any) -> Any:
    """-1, 0 or 1; 0 for nan and for either zero."""
    return np.greater(a, 0).astype(a.dtype) - np.less(a, 0).astype(a.dtype)


def fraction(a: Any) -> Any:
    """What is left without the integer part."""
    return np.subtract(a, np.trunc(a))


def angle(a: Any) -> Any:
    """The angle of a real number to the positive real axis."""
    return np.where(np.not_equal(a, a), a, np.where(np.less(a, 0), np.array(math.pi, a.dtype), np.zeros((), a.dtype)))


def clamp(low: Any, x: Any, high: Any) -> Any:
    """x, low where it is less, high where it is more; 0 is more than -0."""
    most = np.where((x == 0) & (low == 0), x + low, np.maximum(x, low))
    return np.where((most == 0) & (high == 0), -(-most - high), np.minimum(most, high))


def hardsigmoid(a: Any) -> Any:
    """relu6(a + 3) / 6."""
    zero, six = np.zeros((), a.dtype), np.array(6, a.dtype)
    return np.true_divide(clamp(zero, np.add(a, np.array(3, a.dtype)), six), six)


def hardswish(a: Any) -> Any:
    """a * relu6(a + 3) / 6."""
    zero, six = np.zeros((), a.dtype), np.array(6, a.dtype)
    return np.true_divide(np.multiply(a, clamp(zero, np.add(a, np.array(3, a.dtype)), six)), six)


# The numbers from `REM` on, of float32 and float64: what takes NumPy several calls, or a slow one. The same bits here as in C.
OF_REALS = (
    np.fmod, remainder, floor_divide, quotient, np.nextafter, np.copysign, direction, fraction, angle, clamp, hardsigmoid, hardswish,
)  # fmt: skip


_FUNCTIONS = (
    np.add, np.subtract, np.multiply, np.divide, np.negative, np.abs, np.sqrt, np.square, lambda a: 1 / np.sqrt(a), _larger, _smaller, _sign,
    np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal, _select, np.copy, lambda a: a != 0,
)  # fmt: skip
_FROM_HALVES_ON = (
    np.copy, lambda a: _wide(BRAIN, a), np.copy, lambda a: a.astype(ml_dtypes.bfloat16).view(np.uint16), lambda a: a.astype(np.float16),
    lambda a: a.astype(ml_dtypes.bfloat16), np.copy, *(lambda a, b, c: a * b + c, lambda a, b, c: c - a * b) * 2,
    lambda a, b: np.sqrt(a) + b, *OF_REALS,
)  # fmt: skip
# Of how many operands each is.
ARITY = (2, 2, 2, 2, 1, 1, 1, 1, 1, 2, 2, 1, 2, 2, 2, 2, 2, 2, 3, *(1,) * 18, 3, 3, 3, 3, 2, *(2,) * 6, 1, 1, 1, 3, 1, 1)
ADD, SUB, MUL, DIV, NEG, ABS, SQRT, SQUARE, RSQRT, LARGER, SMALLER, SIGN, GT, GE, LT, LE, EQ, NE, SELECT = range(19)
# The numbers that a mask is, and the mask of numbers that are not 0; and `spread`.
LOAD, KEEP, SPREAD = 19, 20, 21
# In C alone: polynomials, the Cephes library's (S. Moshier), right to some units of the last place. ERF is of float32 alone.
EXP, TANH, LOGISTIC, ERF, LOG, LOG1P, SIN, COS = range(22, 30)
# From memory of float16 (HALF) and bfloat16 (BRAIN, whose memory is that of uint16) to float32, and back, rounded; float32 rounded to one of them;
# and as it is.
WIDEN_HALF, WIDEN_BRAIN, NARROW_HALF, NARROW_BRAIN, ROUND_HALF, ROUND_BRAIN, COPY = range(30, 37)
# Two operations in one pass, each rounded as by itself: a * b + c and c - a * b; the same where b is one number; sqrt(a) + b.
MUL_ADD, MUL_SUB, SCALED_ADD, SCALED_SUB, SQRT_ADD = range(37, 42)
# See `OF_REALS`.
REM, REMAINDER, FLOOR_DIVIDE, QUOTIENT, NEXTAFTER, COPYSIGN, DIRECTION, FRACTION, ANGLE, CLAMP, HARDSIGMOID, HARDSWISH = range(42, 54)
# The elements of an operand that lies otherwise than in one piece; and how many numbers say how it lies, or is spread.
SLICED, PATTERN = 54, 5
# The letters of the memory that elements lie in; `kind` below: of masks, too, and of what is as the others are.
MASK, HALF, BRAIN = ord("?"), ord("e"), ord("H")


def _wide(kind: int, a: Any) -> Any:
    return a.view(ml_dtypes.bfloat16).astype(np.float32) if kind == BRAIN else a


def memory(array: Any, length: int, letter: int, written: bool) -> Any:
    """The memory of a contiguous array of so many bytes and of the dtype of this letter. BufferError where it is none."""
    if array.nbytes != length or ord(array.dtype.char) != letter or not array.flags.c_contiguous:
        raise BufferError
    return array.reshape(-1)


def slices(array: Any, length: int, letter: int, patterns: Any, which: int) -> bool:
    """Write how an array lies in memory, with gaps between its elements, or turned, into the pattern of an operand (`gathering.h`). False if it is
    better copied, and then the pattern is the copy's: here always. BufferError as for `memory`."""
    if array.nbytes != length or ord(array.dtype.char) != letter:
        raise BufferError
    patterns[PATTERN * which : PATTERN * (which + 1)] = [array.size, array.itemsize, 1, 0, 0]
    return False


def begin_of(array: Any) -> Any:
    """The memory of an array from its first element on, wherever the others are: in C."""
    raise NotImplementedError


def width(letter: int) -> int:
    """How many bytes an element has in memory."""
    return {MASK: 1, HALF: 2, BRAIN: 2, 102: 4}.get(letter, 8)


def starts(count: int) -> Any:
    """Room for the memory of so many slots."""
    return [None] * count


def steps(count: int) -> Any:
    """Room for as many numbers of bytes."""
    return [0] * count


def copied_patterns(patterns: Any, operands: int) -> Any:
    """The patterns of so many operands."""
    return patterns[: PATTERN * operands]


def room(registers: int, length: int, letter: int) -> Any:
    """Memory for so many registers of so many bytes."""
    return np.empty((registers, length), np.uint8).view(chr(letter))


def register(room: Any, which: int, length: int) -> Any:
    """One of the registers."""
    return room[which]


def at(start: Any, step: int, begin: int) -> Any:
    """What lies `begin` elements of `step` bytes behind the start."""
    return start[begin:] if step else start


def fill(letter: int, kind: int, source: Any, out: Any, n: int) -> None:
    """Fill `out` with the one element of the source, which is of that kind, as a number."""
    out[:n] = _wide(kind, source[:1])[0]


def gather(letter: int, kind: int, source: Any, where: Any, begin: int, out: Any, n: int) -> None:
    """The elements from `begin` on of what lies as `slices` says, as numbers."""
    out[:n] = _wide(kind, source[begin : begin + n])


def spread(letter: int, kind: int, source: Any, size: int, pattern: Any, begin: int, out: Any, n: int) -> None:
    """The elements from `begin` on of what a pattern (`chains.pattern_of`) makes of the source's `size` elements, as numbers."""
    times, inner, gap = pattern[:3]
    place = np.arange(begin, begin + n) // times
    out[:n] = _wide(kind, source[place // inner // gap % (size // inner) * inner + place % inner])


def lane(letter: int, which: int, a: Any, b: Any, c: Any, out: Any, n: int) -> None:
    """One operation, by its number, on n elements."""
    function = _FROM_HALVES_ON[which - WIDEN_HALF] if which >= WIDEN_HALF else _FUNCTIONS[which]
    out[:n] = function(*[x[:n] for x in (a, b, c)[: ARITY[which]]])


def lane_shared(letter: int, which: int, a: Any, out: Any, n: int) -> None:
    """One operation of one operand on n elements, shared by threads in C."""
    lane(letter, which, a, a, a, out, n)


def operation(
    letter: int, which: int, a: Any, of_a: int, b: Any, of_b: int, c: Any, of_c: int, out: Any, n: int, shared: bool
) -> None:  # fmt: skip
    """One operation on n elements, of operands that have so many elements each: all, or one. shared: by threads in C."""
    a, b, c = [x if size == n else np.repeat(x[:1], n) for x, size in ((a, of_a), (b, of_b), (c, of_c))]
    lane(letter, which, a, b, c, out, n)


def run(
    letter: int, code: Any, operations: int, letters: Any, sizes: Any, patterns: Any, start: Any, step: Any, begin: int, end: int, most: int
) -> None:  # fmt: skip
    """Carry out a chain's operations on the elements from `begin` to `end`, block by block of at most so many."""
    while begin < end:
        n = min(most, end - begin)
        for k in range(0, 5 * operations, 5):
            out, a, b, c = code[k + 1], code[k + 2], code[k + 3], code[k + 4]
            if code[k] == SPREAD:
                spread(letter, letters[a], start[a], sizes[a], patterns[PATTERN * a :], begin, start[out], n)
                continue
            if code[k] == SLICED:
                gather(letter, letters[a], start[a], patterns[PATTERN * a :], begin, start[out], n)
                continue
            lane(
                letter, code[k], at(start[a], step[a], begin), at(start[b], step[b], begin), at(start[c], step[c], begin),
                at(start[out], step[out], begin), n,
            )  # fmt: skip
        begin += n


def works(count: int) -> list[Any]:
    """Room for as many chains with their arrays."""
    return [SimpleNamespace() for _ in range(count)]


def scratch(registers: int, length: int, letter: int) -> list[Any]:
    """Room for one chain with so many registers, the same each time in C."""
    return [SimpleNamespace(start=starts(128), step=steps(128), room=room(registers, length, letter))]


def nth(work: list[Any], which: int) -> list[Any]:
    """The room from one of them on."""
    return work[which:]


def first(work: list[Any]) -> Any:
    """The first of them."""
    return work[0]


def let_go(work: list[Any], count: int) -> None:
    """Give the room back, and what is in it."""


def run_alone(work: list[Any]) -> None:
    """`run` on all elements of the first."""
    w = work[0]
    run(w.letter, w.code, w.operations, w.letters, w.sizes, w.patterns, w.start, w.step, 0, w.size, w.most)


def run_shared(work: list[Any]) -> None:
    """The same, in C by several threads, each a part of the elements: it has registers of its own, so many from the slot `first` on."""
    run_alone(work)


def run_together(work: list[Any], count: int) -> None:
    """`run` on all elements of each, in C by several threads, each some of them."""
    for i in range(count):
        run_alone(nth(work, i))


def add_at(letter: int, rows: Any, places: Any, updates: Any, count: int, most: int, length: int) -> None:
    """Add each of `count` updates of this length to the row at its place, if that is in [0, most)."""
    there = (places >= 0) & (places < most)
    np.add.at(rows.reshape(most, length), places[there], updates.reshape(count, length)[there])


def factorize(letter: int, a: Any, pivots: Any, order: Any, rows: int, columns: int) -> None:
    """Write both triangles of an LU factorization over a matrix, which row each was exchanged with (the largest of its column, by what LAPACK takes
    for a complex size), and the order in which the rows are then."""
    a = a[: rows * columns].reshape(rows, columns)
    order[:rows] = np.arange(rows)
    for k in range(min(rows, columns)):
        column = a[k:, k]
        pivots[k] = k + np.argmax(np.abs(column.real) + np.abs(column.imag) if a.dtype.kind == "c" else np.abs(column))
        if pivots[k] != k:
            a[[k, pivots[k]]] = a[[pivots[k], k]]
            order[[k, pivots[k]]] = order[[pivots[k], k]]
        if a[k, k] != 0:
            a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])


def first_zero(letter: int, a: Any, size: int) -> int:
    """The place, from 1, of the first 0 on the diagonal of a square matrix; 0 where there is none."""
    zero = a[: size * size : size + 1] == 0
    return int(np.argmax(zero)) + 1 if zero.any() else 0


def cholesky(letter: int, a: Any, size: int) -> None:
    """Write its Cholesky factor over a matrix, of which the lower triangle is read: nan everywhere if there is none."""
    a = a[: size * size].reshape(size, size)
    for k in range(size):
        if not a[k, k] > 0:
            a[...] = np.nan
            return
        a[k, k] = np.sqrt(a[k, k])
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k + 1 :, k])
    a[...] = np.tril(a)


def substitute(letter: int, a: Any, x: Any, size: int, columns: int, turned: bool, lower: bool, unit: bool) -> None:
    """Write the solution of a triangular system over its right side, column after column of the matrix, which is read transposed if `turned`. The
    other triangle is not read."""
    a, x = a[: size * size].reshape(size, size), x[: size * columns].reshape(size, columns)
    a = a.T if turned else a
    for i in range(size) if lower else range(size - 1, -1, -1):
        others = slice(i + 1, size) if lower else slice(i)
        if not unit:
            x[i] /= a[i, i]
        x[others] -= np.outer(a[others, i], x[i])
