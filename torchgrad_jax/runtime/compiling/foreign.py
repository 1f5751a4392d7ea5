"""Foreign functions of XLA's: matrix products by NumPy's BLAS, and convolutions."""

from __future__ import annotations

import ctypes
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from torchgrad_jax.runtime.baseline import numpy_blas
from torchgrad_jax.runtime.compiling import handlers

PRODUCT, CONVOLUTION = "torchgrad_jax_product", "torchgrad_jax_convolution"
# The versions of XLA's interface, 0.x, that `sharing.pxd` was written for: those of JAX 0.10 and 0.11.
_VERSIONS = (3, 4)
# What NumPy's wheels, builds with 64-bit integers and Apple's library call the functions; and others, whose integers may have 32 bits: on Linux's
# processors it makes no difference if they are passed in 64.
_NAMES = ("scipy_cblas_{}gemm64_", "cblas_{}gemm64_", "cblas_{}gemm$NEWLAPACK$ILP64", *(("cblas_{}gemm",) if sys.platform == "linux" else ()))
_CORE = ("scipy_openblas_get_corename64_", "openblas_get_corename64_", "openblas_get_corename")
# OpenBLAS's names of processors for which it has other functions for small matrices, but not for small products with a transposed one.
_NARROW = ("SkylakeX", "Cooperlake", "SapphireRapids")


@cache
def knows_products() -> bool:
    """Whether there is the function for products. Asked first, it is made known to XLA."""
    single, double, minor = _routine("s"), _routine("d"), _version()
    if single is None or double is None or minor is None:
        return False
    return _is_made_known(PRODUCT, handlers.product(single, double, minor, _core() in _NARROW))


@cache
def knows_convolutions() -> bool:
    """Whether there is the function for convolutions. Asked first, it is made known to XLA."""
    minor = _version()
    return minor is not None and _is_made_known(CONVOLUTION, handlers.convolution(minor))


def _is_made_known(name: str, capsule: Any) -> bool:
    if capsule is not None:
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    return capsule is not None


@cache
def _version() -> int | None:
    """The version of XLA's interface for foreign functions, 0.this, as its header says; None if it is not one that is known here."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    said = header.read_text() if header.exists() else ""
    found = re.search(r"define XLA_FFI_API_MAJOR 0\s.*?define XLA_FFI_API_MINOR (\d+)\s", said, re.DOTALL)
    return int(found[1]) if found is not None and int(found[1]) in _VERSIONS else None


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
