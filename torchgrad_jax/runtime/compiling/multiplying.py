"""The function that XLA calls for a matrix product: one of C's, in compiled modules (`multiplying.pxd`). Here there is none."""

from __future__ import annotations

from typing import Any


def handler(single: int, double: int, minor: int, narrow: bool) -> Any:
    """A capsule with the function, None where there is none. single, double: the addresses of `cblas_sgemm` and `cblas_dgemm`; minor: the version of
    XLA's interface, 0.minor. narrow: whether a product with a transposed matrix is quicker in narrow blocks."""
    return None
