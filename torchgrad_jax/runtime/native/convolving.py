"""Convolutions by functions of C's, in compiled modules (`convolving.pxd`): for XLA, and for the interpreter. Here there are none."""

from __future__ import annotations

from typing import Any


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def convolve(x: Any, y: Any, out: Any, how: Any) -> bool:
    """Write into `out` (batch, to, height', width') what images `x` (batch, channels, height, width) and the kernel `y` (to, channels, ...) give; or
    the kernel's gradient, of the images and the gradient of what they gave. All contiguous, of float32. how: thirteen int64, see `convolving.pxd`.
    Returns whether there is such a function."""
    return False
