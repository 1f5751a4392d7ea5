"""The function that XLA calls for a convolution: one of C's, in compiled modules (`convolving.pxd`). Here there is none."""

from __future__ import annotations

from typing import Any


def handler(minor: int) -> Any:
    """A capsule with the function, None where there is none. minor: the version of XLA's interface, 0.minor."""
    return None
