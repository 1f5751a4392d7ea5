"""Samples of raw draws in float32: uniform ones, and by the Box-Muller transform, as PyTorch's AVX2 kernel computes it, normal ones, to the bit.

Of arrays; in compiled modules the functions that fill memory are loops of C: `box_muller.pxd`. Polynomials: the Cephes library (S. Moshier), for
log, sin and cos in single precision. All constants are float32 values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.operators.kernels import rounded as f32

_LOG = [
    0.07037683576345444, -0.11514610052108765, 0.11676998436450958, -0.12420140951871872, 0.14249323308467865, -0.16668057441711426,
    0.2000071406364441, -0.24999994039535522, 0.3333333134651184,
]  # fmt: skip
_SIN = [-0.00019515295571181923, 0.008332161232829094, -0.16666655242443085]
_COS = [2.44331567955669e-05, -0.0013887316454201937, 0.04166664555668831]
# ln 2 and pi / 4, each the sum of its parts.
_LN2 = [0.693359375, -0.00021219444170128554]
_PI_4 = [0.78515625, 0.00024187564849853516, 3.774895063202166e-08]
_ROOT_HALF = 0.7071067690849304
_4_PI = 1.2732394933700562
_2PI = 6.2831854820251465
_AT_ONCE = 2048  # blocks that NumPy computes at once: they stay in the cache


def pair(radius: Any, angle: Any) -> Any:
    """Two standard normal samples of two uniform ones of [0, 1)."""
    r = f32.wide(f32.root(f32.single(-2.0 * _log(1 - radius))))
    sin, cos = _sin_cos(angle * _2PI)
    return f32.single(r * cos), f32.single(r * sin)


def normals(uniform: Any, out: Any) -> None:
    """Fill `out` with normal samples of uniform ones, both (n,), n a multiple of 16: of 16 the first 8 make radii, the others angles."""
    blocks, filled = uniform.reshape(-1, 16), out.reshape(-1, 16)
    for start in range(0, len(blocks), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        filled[part, :8], filled[part, 8:] = pair(blocks[part, :8], blocks[part, 8:])


def scale(values: Any, by: float, more: float) -> None:
    """Write values * by + more over values (n,), float32, rounded once."""
    f32.fuse(values, by, more)


def units(draws: Any, out: Any) -> None:
    """Fill `out` with uniform samples of [0, 1) of raw draws, both (n,): the low 24 bits of each."""
    np.multiply((draws & np.uint64(0xFFFFFF)).astype(np.int32), np.float32(2**-24), out, dtype=np.float32)  # of signed integers quicker


def wide_units(draws: Any, out: Any) -> None:
    """Fill `out` (n,) with uniform samples of [0, 1) in float64 of raw draws (2 n,): the low 53 bits of each pair, its first draw being the high
    word."""
    pairs = draws[0::2] << np.uint64(32) | draws[1::2]
    np.multiply((pairs & np.uint64(2**53 - 1)).view(np.int64), 2.0**-53, out)


def _log(x: Any) -> Any:
    """The logarithm of float32 in (0, 1], in float64."""
    m, e = f32.mantissa(x), f32.exponent(x)
    small = m < _ROOT_HALF
    m = f32.pick(small, 2 * m, m) - 1
    e = f32.wide(e - small)
    z = f32.mul(m, m)
    y = f32.mad(m, _LOG[0], _LOG[1])
    for i in range(2, 9):
        y = f32.mad(y, m, _LOG[i])
    y = f32.mad(f32.mul(y, m), z, f32.mul(e, _LN2[1]))
    y = f32.mad(z, -0.5, y)
    return f32.mad(e, _LN2[0], f32.mad(m, 1.0, y))


def _sin_cos(x: Any) -> Any:
    """Sine and cosine of float32 x >= 0, in float64."""
    octant = f32.floor(x * _4_PI)
    octant = (octant + 1) & ~1
    r, y = f32.wide(x), f32.wide(octant)
    for i in range(3):
        r = f32.mad(y, -_PI_4[i], r)
    z = f32.mul(r, r)
    cos = f32.mul(f32.mad(f32.mad(z, _COS[0], _COS[1]), z, _COS[2]), z)
    cos = f32.mad(f32.mad(cos, z, z * -0.5), 1.0, 1.0)
    sin = f32.mul(f32.mad(f32.mad(z, _SIN[0], _SIN[1]), z, _SIN[2]), z)
    sin = f32.mad(sin, r, r)
    swapped = (octant & 2) != 0
    sin, cos = f32.pick(swapped, cos, sin), f32.pick(swapped, sin, cos)
    return f32.pick((octant & 4) != 0, -sin, sin), f32.pick(((octant - 2) & 4) == 0, -cos, cos)
