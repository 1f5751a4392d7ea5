"""Fourier transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline.cost import elements, weight
from torchgrad_jax.runtime.baseline.rules import Unknown, rule


def _cost(eqn: Any) -> float:
    stages = 1 + math.log2(max(1, math.prod(eqn.params["fft_lengths"])))
    return 8000.0 * len(eqn.params["fft_lengths"]) + stages * elements(eqn) * weight(eqn.outvars[0].aval.dtype)


@rule("fft", cost=_cost)
def _fft(eqn: Any) -> Any:
    """NumPy's in single precision too: it keeps the dtype."""
    lengths, dtype, kind = eqn.params["fft_lengths"], eqn.outvars[0].aval.dtype, eqn.params["fft_type"].name
    axes = tuple(range(-len(lengths), 0))
    if 0 in eqn.invars[0].aval.shape or 0 in eqn.outvars[0].aval.shape:
        raise Unknown("transform of nothing")
    transform = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}[kind]
    return lambda x: transform(x, lengths, axes).astype(dtype, copy=False)
