"""Standard normal samples of float32 in blocks of 16, as PyTorch's AVX2 kernel makes them, to the bit.

Where the typed core is compiled, so are the loops: 4 ns a normal sample. Else NumPy computes them, in 50 ns a sample and 150 us for its calls, or,
where they are many, XLA, in 5 ns.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from torchgrad_jax.operators.kernels import box_muller, drawing, twister
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime._jax_compat import x64
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import rounding_options

# Whether the loops are compiled.
_in_c = not isinstance(drawing.normals, FunctionType)
_COMPILED = 1 << 14  # blocks of one run of XLA's function
_MANY = 1 << 16  # blocks from which on compiling it (0.3 s, once in a process) is worth it


def drawn(g: Any, n: int) -> np.ndarray:
    """n >= 16 samples, (n,), of the next draws: all n of them first, of which the last ones, where they are no whole block, are replaced by those of
    a block of 16 further draws, which overlaps the last whole one."""
    if _in_c and g.rejecting is drawing:
        out = np.empty(n, np.float32)
        g.moved()
        drawing.draw_normals(g._bits, out)
        return out
    whole, rest = n - n % 16, n % 16
    u = g.samples(twister.UNIT, n + 16 if rest else n)
    found = in_blocks(u[:whole])
    return np.concatenate([found[: n - 16], in_blocks(u[n:])]) if rest else found


def in_blocks(uniform: np.ndarray) -> np.ndarray:
    """The samples of uniform samples of [0, 1), (n,), n a multiple of 16: radii are made of the first 8 of 16, angles of the others."""
    out = np.empty_like(uniform)
    if _in_c or len(uniform) < 16 * _MANY or modes.without_xla or (function := _compiled()) is None:
        drawing.normals(uniform, out)
        return out
    blocks, filled = uniform.reshape(-1, 16), out.reshape(-1, 16)
    for start in range(0, len(blocks), _COMPILED):
        part = blocks[start : start + _COMPILED]
        if len(part) < _COMPILED:
            part = np.concatenate([part, np.zeros((_COMPILED - len(part), 16), np.float32)])
        filled[start : start + _COMPILED] = np.asarray(function(part))[: len(filled) - start]
    return out


@functools.cache
@x64
def _compiled() -> Any:
    """The samples of `_COMPILED` blocks on JAX's CPU; None where JAX was told to do without."""
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None
    counters.compiled_ops += 1
    with jax.default_device(cpu):
        function = jax.jit(lambda u: jnp.concatenate(box_muller.pair(u[:, :8], u[:, 8:]), 1), compiler_options=rounding_options(CPU))
        return function.lower(jax.ShapeDtypeStruct((_COMPILED, 16), np.float32)).compile()
