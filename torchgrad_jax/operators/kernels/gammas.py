"""Sampling recipes of PyTorch's CPU kernels for gamma and Dirichlet distributions.

Every function takes the source of draws first; `Generator` documents arguments, results and errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from torchgrad_jax.operators.kernels.distributions import Draws, unsupported

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
# PyTorch's kernel has this number in float32 whatever it computes in.
_THIRD = np.float32(1.0 / 3.0)


def _normal(g: Draws, draw: Iterator[float]) -> float:
    """A standard normal from two uniforms; the second of the pair stays in the state."""
    cached = g._next_normal
    if cached is not None:
        g._next_normal = None
        return cached
    theta = 2.0 * math.pi * next(draw)
    radius = math.sqrt(-2.0 * math.log1p(-next(draw)))
    g._next_normal = radius * math.sin(theta)
    return radius * math.cos(theta)


def _cubed_normal(g: Draws, d: float, c: float, draw: Iterator[float]) -> float:
    """Marsaglia and Tsang (ACM Trans. Math. Software 26(3), 2000): a gamma sample of concentration d + 1/3, over d; c = 1 / sqrt(9 d)."""
    while True:
        x = _normal(g, draw)
        y = 1.0 + c * x
        if y <= 0:
            continue
        v = y * y * y
        u = 1.0 - next(draw)
        square = x * x
        if u < 1.0 - 0.0331 * square * square or not math.log(u) >= 0.5 * square + d * (1.0 - v + math.log(v)):
            return v


def _power(x: float, exponent: float) -> float:
    try:
        return math.pow(x, exponent)
    except OverflowError:
        return math.inf


def _gammas(g: Draws, concentration: np.ndarray) -> list[float]:
    """Gamma samples of rate 1, computed in float64 of constants in the dtype of the concentrations, which is what PyTorch does."""
    with np.errstate(all="ignore"):
        below_one = concentration < 1
        d = np.where(below_one, concentration + 1, concentration) - concentration.dtype.type(_THIRD)
        c = 1.0 / np.sqrt(9.0 * d.astype(np.float64))
        exponent = np.where(below_one, 1 / concentration, 0)
    found = []
    with g.lookahead() as draw:
        for a, d_, c_, e in zip(*(x.reshape(-1).tolist() for x in (concentration, d, c, exponent)), strict=True):
            if a == 0:
                found.append(0.0)
                continue
            scale = _power(1.0 - next(draw), e) if a < 1 else 1.0
            found.append(scale * d_ * _cubed_normal(g, d_, c_, draw))
    return found


def standard_gamma(g: Draws, concentration: np.ndarray) -> np.ndarray:
    if concentration.dtype not in _FLOATS:
        raise unsupported("gamma_cpu", concentration.dtype)
    with np.errstate(over="ignore"):
        found = np.array(_gammas(g, concentration), np.float64).astype(concentration.dtype).reshape(concentration.shape)
    # fmax: of NaN too the least number becomes, as in PyTorch.
    return np.fmax(found, np.finfo(found.dtype).tiny)


def dirichlet(g: Draws, concentration: np.ndarray) -> np.ndarray:
    dtype = concentration.dtype
    if dtype not in _FLOATS:
        raise unsupported("dirichlet", dtype)
    # Whatever the dtype, in float64.
    gammas = np.array(_gammas(g, concentration.astype(np.float64)), np.float64).reshape(concentration.shape)
    gammas = np.fmax(gammas, np.finfo(np.float64).tiny)
    # One after the other: NumPy's sum would add in another order.
    total = np.cumsum(gammas, -1)[..., -1:] if gammas.ndim else gammas
    with np.errstate(invalid="ignore"):
        return np.clip((gammas / total).astype(dtype), np.finfo(dtype).tiny, np.nextafter(dtype.type(1), dtype.type(0)))
