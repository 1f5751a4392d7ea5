"""Functions that XLA's programs call; compiled, they are C's."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime.compiling import convolving, multiplying


def product(single: int, double: int, minor: int, narrow: bool) -> Any:
    """See `multiplying.handler`."""
    return multiplying.handler(single, double, minor, narrow)


def convolution(minor: int) -> Any:
    """See `convolving.handler`."""
    return convolving.handler(minor)
