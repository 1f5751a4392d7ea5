"""NumPy's BLAS as a function that XLA's programs call; compiled, it is C's that does."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime.compiling import multiplying


def handler(single: int, double: int, minor: int, narrow: bool) -> Any:
    """See `multiplying.handler`."""
    return multiplying.handler(single, double, minor, narrow)
