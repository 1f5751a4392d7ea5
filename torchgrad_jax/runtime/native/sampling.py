"""Images sampled at points by functions of C's, in compiled modules (`sampling.pxd`): for XLA, and for the interpreter. Here there are none."""

from __future__ import annotations

from typing import Any


def handler(minor: int) -> Any:
    """A capsule with the function that XLA calls, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None


def sample(image: Any, grid: Any, grad: Any, out: Any, how: Any) -> bool:
    """Write into `out` what images (N, C, height, width) are at the points (N, ..., 2) of a grid, or volumes at those (N, ..., 3) of one; or, given
    the gradient of that, the gradient of one of both. All contiguous, of float32, and not empty. how: eleven int64, see `sampling.pxd`. Returns
    whether there is such a function."""
    return False
