"""Standard normal samples of float32 in blocks of 16, as PyTorch's AVX2 kernel makes them of uniform ones, to the bit.

The arithmetic is of float32 with fused multiply-adds. It is done in float64, where a product is exact, and rounded. Few samples are computed by
NumPy; many by the same functions compiled, which takes 0.1 of the time.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime._jax_compat import x64
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.device import CPU
from torchgrad_jax.runtime.operation import rounding_options

# Minimax polynomials of the Cephes library (S. Moshier) for log, sin and cos in single precision.
_LOG_POLY = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_SIN_POLY = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS_POLY = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_PI_4 = (0.78515625, 2.4187564849853515625e-4, 3.77489497744594108e-8)

_AT_ONCE = 2048  # blocks that NumPy computes at once: they stay in the cache
_COMPILED = 1 << 14  # blocks of one run of the compiled functions
_MANY = 1 << 16  # blocks from which on compiling (0.3 s, once in a process) is worth it


def in_blocks(uniform: np.ndarray) -> np.ndarray:
    """The samples of blocks (n, 16) of uniform samples of [0, 1): radii are made of the first 8 of a block, angles of the others."""
    out = np.empty_like(uniform)
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
    logarithm = _log32(np.float32(1) - uniform[:, :8], xp)
    radius = xp.sqrt((-2.0 * logarithm).astype(np.float32)).astype(np.float64)
    sin, cos = _sincos32(uniform[:, 8:] * np.float32(2 * math.pi), xp)
    return xp.concatenate([(radius * cos).astype(np.float32), (radius * sin).astype(np.float32)], 1)


def _r32(x: float) -> float:
    return float(np.float32(x))


def _mad(a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded to float32, of float32 values held in float64."""
    t = a * b
    t += c
    return t.astype(np.float32).astype(np.float64)


def _mul(a: Any, b: Any) -> Any:
    return (a * b).astype(np.float32).astype(np.float64)


def _horner(poly: tuple[float, ...], x: Any) -> Any:
    y = _mad(x, _r32(poly[0]), _r32(poly[1]))
    for p in poly[2:]:
        y = _mad(y, x, _r32(p))
    return y


def _log32(x: Any, xp: Any) -> Any:
    """Cephes logf of float32 in (0, 1], with fused multiply-adds; returned in float64."""
    m, e = xp.frexp(x)
    small = m < np.float32(math.sqrt(0.5))
    m = m.astype(np.float64)
    m = xp.where(small, 2 * m, m) - 1
    exponent = (e - small).astype(np.float64)
    z = _mul(m, m)
    y = _mul(_horner(_LOG_POLY, m), m)
    y = _mad(y, z, _mul(exponent, _r32(_LN2_LOW)))
    y = _mad(z, -0.5, y)
    return _mad(exponent, _LN2_HIGH, _mad(m, 1.0, y))


def _sincos32(x: Any, xp: Any) -> tuple[Any, Any]:
    """Cephes sinf and cosf of float32 x >= 0, with fused multiply-adds; returned in float64."""
    octant = (x * np.float32(4 / math.pi)).astype(np.int32)
    octant = (octant + 1) & ~1
    y = octant.astype(np.float64)
    r = x.astype(np.float64)
    for part in _PI_4:
        r = _mad(y, -_r32(part), r)
    z = _mul(r, r)
    cos = _mul(_horner(_COS_POLY, z), z)
    cos = _mad(cos, z, z * -0.5)
    cos = _mad(cos, 1.0, 1.0)
    sin = _mul(_horner(_SIN_POLY, z), z)
    sin = _mad(sin, r, r)
    swap = (octant & 2) != 0
    sin, cos = xp.where(swap, cos, sin), xp.where(swap, sin, cos)
    return xp.where((octant & 4) != 0, -sin, sin), xp.where(((octant - 2) & 4) == 0, -cos, cos)
