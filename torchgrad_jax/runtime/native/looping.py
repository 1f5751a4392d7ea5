"""Loops along a dimension by functions of C's, in compiled modules (`looping.pxd`): for XLA, and for the interpreter. Here there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def loop(given: Sequence[Any], made: Sequence[Any], how: Any) -> bool:
    """Write into the arrays `made` what is asked for of the given ones. All contiguous, and not empty. how: int64, see `baseline/loops.py`. Returns
    whether there is such a function."""
    return False
