"""Scaled dot-product attention by functions of C's, in compiled modules (`attending.pxd`): for XLA, and for the interpreter. Here there are none."""

from __future__ import annotations

from typing import Any


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def attend(given: list[Any], made: list[Any], weights: Any, how: Any, mask: Any, drop: Any) -> bool:
    """Write into `made` the output, and into `weights` the weights, of a query, a key and a value; or, of the output's gradient, these three and
    the weights, their gradients. All of float32, (samples, heads, rows, features) with features next to each other; weights: contiguous. how: nine
    int64, see `attending.pxd` for which they are. mask: what is added to the scores, or bytes that say which of them are filled, of four dimensions
    that are theirs or 1, contiguous, or None. drop: by what weights are multiplied before they are with the value, float32, contiguous, as many
    numbers, or None.

    Returns whether there is such a function."""
    return False
