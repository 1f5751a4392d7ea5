"""Foreign functions of XLA's: matrix products, reductions, convolutions, the largest elements of windows, images at points, sums
of a few elements along a dimension, softmax and standardization of rows, what runs along a dimension, the steps of an LSTM, and attention."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax

from torchgrad_jax.runtime.native import blas, handlers

PRODUCT, REDUCTION, CONVOLUTION, POOLING, SAMPLING, TAPS, ROWS, ALONG, LSTM, ATTENTION = [
    f"torchgrad_jax_{name}" for name in ("product", "reduction", "convolution", "pooling", "sampling", "taps", "rows", "along", "lstm", "attention")
]
_HANDLERS = {
    PRODUCT: handlers.product, REDUCTION: handlers.reducer, CONVOLUTION: handlers.convolution, POOLING: handlers.pooler,
    SAMPLING: handlers.sampler, TAPS: handlers.resampler, ROWS: handlers.row_handler, ALONG: handlers.looper, LSTM: handlers.recurrer,
    ATTENTION: handlers.attender,
}  # fmt: skip
# The versions of XLA's interface, 0.x, that `sharing.pxd` was written for: those of JAX 0.10 and 0.11.
_VERSIONS = (3, 4)


@cache
def knows(name: str) -> bool:
    """Whether there is the foreign function of this name. Asked first, it is made known to XLA."""
    minor = _version()
    return minor is not None and (name != PRODUCT or blas.multiplies()) and _is_made_known(name, _HANDLERS[name](minor))


def knows_products() -> bool:
    """Whether there is the one for products."""
    return knows(PRODUCT)


def knows_convolutions() -> bool:
    """Whether there is the one for convolutions."""
    return knows(CONVOLUTION)


def _is_made_known(name: str, capsule: Any) -> bool:
    if capsule is not None:
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    return capsule is not None


@cache
def _version() -> int | None:
    """The version of XLA's interface for foreign functions, 0.this, as its header says; None if it is not one that is known here."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    said = header.read_text() if header.exists() else ""
    # Without a regular expression, which takes longer to compile than this.
    major, minor = [said.partition(f"define XLA_FFI_API_{part} ")[2].partition("\n")[0].strip() for part in ("MAJOR", "MINOR")]
    return int(minor) if major == "0" and minor.isdecimal() and int(minor) in _VERSIONS else None
