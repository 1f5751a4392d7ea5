"""Matrix products by C: by functions of our own or by NumPy's BLAS (`multiplying.pxd`)."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.runtime.native import handlers, numpy_blas

_SWITCH = os.environ.get("TORCHGRAD_JAX_THIRDS", "on")

if _SWITCH not in ("on", "off"):
    raise ValueError(f"TORCHGRAD_JAX_THIRDS must be on or off, not {_SWITCH!r}")

# What NumPy's wheels, builds with 64-bit integers and Apple's library call the functions; and others, whose integers may have 32 bits: on Linux's
# processors it makes no difference if they are passed in 64.
_NAMES = ("scipy_cblas_{}gemm64_", "cblas_{}gemm64_", "cblas_{}gemm$NEWLAPACK$ILP64", *(("cblas_{}gemm",) if sys.platform == "linux" else ()))
_CORE = ("scipy_openblas_get_corename64_", "openblas_get_corename64_", "openblas_get_corename")
# OpenBLAS's names of processors for which it has other functions for small matrices, but not for small products with a transposed one.
_NARROW = ("SkylakeX", "Cooperlake", "SapphireRapids")


@cache
def multiplies() -> bool:
    """Whether `handlers.multiplied` can be called, and XLA be told of such a function: where the typed core is, and NumPy's BLAS can be found."""
    return multiply_by(handlers.vector_bits(), _SWITCH == "on")


def multiply_by(bits: int, thirds: bool = False) -> bool:
    """Let products go by our own functions for vectors of so many bits, at most `handlers.vector_bits()`, those of float32 by tiles of bfloat16 if
    `thirds` and the processor has them; 0: all by BLAS. Whether they can."""
    single, double = _routine("s"), _routine("d")
    return single is not None and double is not None and handlers.use(single, double, _core() in _NARROW, bits, thirds)


def _routine(letter: str) -> int | None:
    """The address of a function of NumPy's BLAS, if it is found and right."""
    routine = numpy_blas.found([name.format(letter) for name in _NAMES])
    return ctypes.cast(routine, ctypes.c_void_p).value if routine is not None and _is_right(routine, letter) else None


def _core() -> str:
    """Which processor's functions OpenBLAS uses."""
    function = numpy_blas.found(_CORE)
    if function is None:
        return ""
    function.restype = ctypes.c_char_p
    return function().decode()


def _is_right(routine: Any, letter: str) -> bool:
    x, y = (np.arange(6, dtype=letter.replace("s", "f")).reshape(shape) for shape in ((2, 3), (2, 3)))
    found = np.full((2, 2), -1, x.dtype)
    number = ctypes.c_float if letter == "s" else ctypes.c_double
    size, where = ctypes.c_int64, ctypes.c_void_p
    routine.restype = None
    routine(101, 111, 112, size(2), size(2), size(3), number(1), where(x.ctypes.data), size(3), where(y.ctypes.data), size(3), number(0),
            where(found.ctypes.data), size(2))  # fmt: skip
    return bool((found == [[5, 14], [14, 50]]).all())
