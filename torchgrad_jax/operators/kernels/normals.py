"""Standard normal samples of float32 in blocks of 16, as PyTorch's AVX2 kernel makes them of uniform ones, to the bit.

Where the typed core is compiled, so is the transform, for numbers: 20 ns a sample. Else NumPy computes it, in 50 ns a sample and 150 us for its
calls. Many samples are computed by XLA, in 5 ns.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from torchgrad_jax._typed import as_python
from torchgrad_jax.operators.kernels import box_muller
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime._jax_compat import x64
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import rounding_options

# Whether `fill` is a loop over numbers, and no longer Python's.
_by_numbers = not isinstance(box_muller.fill, FunctionType)
_AT_ONCE = 2048  # blocks that NumPy computes at once: they stay in the cache
_COMPILED = 1 << 14  # blocks of one run of the compiled functions
_MANY = 1 << 16  # blocks from which on compiling (0.3 s, once in a process) is worth it


def in_blocks(uniform: np.ndarray) -> np.ndarray:
    """The samples of blocks (n, 16) of uniform samples of [0, 1): radii are made of the first 8 of a block, angles of the others."""
    out = np.empty_like(uniform)
    if len(uniform) >= _MANY and not modes.without_xla and (function := _compiled()) is not None:
        for start in range(0, len(uniform), _COMPILED):
            part = uniform[start : start + _COMPILED]
            if len(part) < _COMPILED:
                part = np.concatenate([part, np.zeros((_COMPILED - len(part), 16), np.float32)])
            out[start : start + _COMPILED] = np.asarray(function(part))[: len(out) - start]
    elif _by_numbers:
        box_muller.fill(uniform, out)
    else:
        for start in range(0, len(uniform), _AT_ONCE):
            out[start : start + _AT_ONCE] = samples(uniform[start : start + _AT_ONCE], np)
    return out


def samples(uniform: Any, xp: Any) -> Any:
    """`in_blocks` of an array of `xp`, which is NumPy or jax.numpy."""
    return xp.concatenate(_of_arrays().pair(uniform[:, :8], uniform[:, 8:]), 1)


@functools.cache
def _of_arrays() -> Any:
    return as_python(box_muller.__name__) if _by_numbers else box_muller


@functools.cache
@x64
def _compiled() -> Any:
    """`samples` for `_COMPILED` blocks on JAX's CPU; None where JAX was told to do without."""
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None
    counters.compiled_ops += 1
    with jax.default_device(cpu):
        function = jax.jit(lambda u: samples(u, jnp), compiler_options=rounding_options(CPU))
        return function.lower(jax.ShapeDtypeStruct((_COMPILED, 16), np.float32)).compile()
