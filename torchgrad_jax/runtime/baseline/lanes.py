"""What a chain (`blocks`) does to a block: loops over arrays, NumPy's here. In compiled modules the same names are loops of C: `lanes.pxd`."""

from __future__ import annotations

from typing import Any

import numpy as np


def _larger(a: Any, b: Any) -> Any:
    return np.where((a == 0) & (b == 0), a + b, np.maximum(a, b))


def _smaller(a: Any, b: Any) -> Any:
    return np.where((a == 0) & (b == 0), -(-a - b), np.minimum(a, b))


def _sign(a: Any) -> Any:
    return np.copysign(np.sign(a), a)


def _select(which: Any, no: Any, yes: Any) -> Any:
    return np.where(which != 0, yes, no)


_FUNCTIONS = (
    np.add, np.subtract, np.multiply, np.divide, np.negative, np.abs, np.sqrt, np.square, lambda a: 1 / np.sqrt(a), _larger, _smaller, _sign,
    np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal, _select, np.copy, lambda a: a != 0,
)  # fmt: skip
# Of how many operands each is.
ARITY = (2, 2, 2, 2, 1, 1, 1, 1, 1, 2, 2, 1, 2, 2, 2, 2, 2, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1)
ADD, SUB, MUL, DIV, NEG, ABS, SQRT, SQUARE, RSQRT, LARGER, SMALLER, SIGN, GT, GE, LT, LE, EQ, NE, SELECT = range(19)
# The numbers that a mask is, and the mask of numbers that are not 0; and `spread`, whose second operand is how many times.
LOAD, KEEP, SPREAD = 19, 20, 21
# Of float32 alone, and in C alone: polynomials, the Cephes library's (S. Moshier) for single precision, right to some units of the last place.
EXP, TANH, LOGISTIC, ERF, LOG, LOG1P = range(22, 28)


def memory(array: Any, length: int, letter: int, written: bool) -> Any:
    """The memory of a contiguous array of so many bytes and of the dtype of this letter. BufferError where it is none."""
    if array.nbytes != length or ord(array.dtype.char) != letter or not array.flags.c_contiguous:
        raise BufferError
    return array.reshape(-1)


def starts(count: int) -> Any:
    """Room for the memory of so many slots."""
    return [None] * count


def steps(count: int) -> Any:
    """Room for as many numbers of bytes."""
    return [0] * count


def room(registers: int, length: int, letter: int) -> Any:
    """Memory for so many registers of so many bytes."""
    return np.empty((registers, length), np.uint8).view(chr(letter))


def done(memory: Any) -> None:
    """Give back what one of the three is."""


def register(room: Any, which: int, length: int) -> Any:
    """One of the registers."""
    return room[which]


def at(start: Any, step: int, begin: int) -> Any:
    """What lies `begin` elements of `step` bytes behind the start."""
    return start[begin:] if step else start


def fill(letter: int, mask: bool, source: Any, out: Any, n: int) -> None:
    """Fill `out` with the one element of the source, or the number that it is as a mask."""
    out[:n] = source[0]


def spread(letter: int, mask: bool, source: Any, size: int, times: int, begin: int, out: Any, n: int) -> None:
    """The elements from `begin` on of what has each of the source's `size` elements so many times, and then all of them again and again; of a
    mask, the numbers that they are."""
    out[:n] = source[np.arange(begin, begin + n) // times % size]


def lane(letter: int, which: int, a: Any, b: Any, c: Any, out: Any, n: int) -> None:
    """One operation, by its number, on n elements."""
    out[:n] = _FUNCTIONS[which](*[x[:n] for x in (a, b, c)[: ARITY[which]]])


def add_at(letter: int, rows: Any, places: Any, updates: Any, count: int, length: int) -> None:
    """Add each of `count` updates of this length to the row at its place."""
    np.add.at(rows.reshape(-1, length), places, updates.reshape(-1, length))
