"""Standard normal samples of float32 in blocks of 16, as PyTorch's AVX2 kernel makes them of uniform ones, to the bit.

Where the typed core is compiled, so is the transform, for numbers: 20 ns a sample. Else few samples are computed by NumPy, in 50 ns each and 150 us
for its calls; many by XLA.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from torchgrad_jax.operators.kernels import box_muller
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime._jax_compat import x64
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import rounding_options

_AT_ONCE = 2048  # blocks that NumPy computes at once: they stay in the cache
_COMPILED = 1 << 14  # blocks of one run of the compiled functions
_MANY = 1 << 16  # blocks from which on compiling (0.3 s, once in a process) is worth it


def in_blocks(uniform: np.ndarray) -> np.ndarray:
    """The samples of blocks (n, 16) of uniform samples of [0, 1): radii are made of the first 8 of a block, angles of the others."""
    out = np.empty_like(uniform)
    if not isinstance(box_muller.fill, FunctionType):
        box_muller.fill(uniform, out)
        return out
    step, function = _AT_ONCE, _by_numpy
    if len(uniform) >= _MANY and not modes.without_xla:
        step, function = _COMPILED, _compiled() or _by_numpy
    for start in range(0, len(uniform), step):
        part = uniform[start : start + step]
        if len(part) < step and function is not _by_numpy:
            part = np.concatenate([part, np.zeros((step - len(part), 16), np.float32)])
        out[start : start + step] = np.asarray(function(part))[: len(out) - start]
    return out


def _by_numpy(uniform: np.ndarray) -> np.ndarray:
    return _samples(uniform, np)


@functools.cache
@x64
def _compiled() -> Any:
    """`_samples` for `_COMPILED` blocks on JAX's CPU; None where JAX was told to do without."""
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None
    counters.compiled_ops += 1
    with jax.default_device(cpu):
        function = jax.jit(lambda u: _samples(u, jnp), compiler_options=rounding_options(CPU))
        return function.lower(jax.ShapeDtypeStruct((_COMPILED, 16), np.float32)).compile()


def _samples(uniform: Any, xp: Any) -> Any:
    return xp.concatenate(box_muller.pair(uniform[:, :8], uniform[:, 8:]), 1)
