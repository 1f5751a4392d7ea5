"""Softmax and standardization of rows by functions of C's, in compiled modules (`rowwise.pxd`): for XLA, and for the interpreter. Here there are
none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def by_rows(given: Sequence[Any], made: Sequence[Any], how: Any) -> bool:
    """Write into the arrays `made` what is asked for of rows of the given ones. All contiguous, of float32, and not empty. how: six int64, see
    `rowwise.pxd`. Returns whether there is such a function."""
    return False


def of_classes(x: Any, classes: Any, losses: Any, ignored: int) -> int:
    """Write minus the element of each row at its class, 0 where that is `ignored`. x: (rows, n, ...), float32 or float64; classes: (rows, ...),
    int64; all row-major. Returns how many are not ignored, -1 where one is no class or there is no such function."""
    return -1
