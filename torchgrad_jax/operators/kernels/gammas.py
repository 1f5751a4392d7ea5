"""Sampling recipes of PyTorch's CPU kernels for gamma and Dirichlet distributions.

Every function takes the source of draws first; `Generator` documents arguments, results and errors.
"""

from __future__ import annotations

import numpy as np

from torchgrad_jax.operators.kernels.distributions import Draws, unsupported

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
# PyTorch's kernel has this number in float32 whatever it computes in.
_THIRD = np.float32(1.0 / 3.0)


def _gammas(g: Draws, concentration: np.ndarray) -> np.ndarray:
    """Gamma samples of rate 1, computed in float64 of constants in the dtype of the concentrations, which is what PyTorch does."""
    given = concentration.reshape(-1)
    with np.errstate(all="ignore"):
        below_one = given < 1
        d = (np.where(below_one, given + 1, given) - given.dtype.type(_THIRD)).astype(np.float64)
        c = 1.0 / np.sqrt(9.0 * d)
        exponent = np.where(below_one, 1 / given, 0).astype(np.float64)
    out = np.empty(given.size)
    g.rejecting.gammas(g, np.ascontiguousarray(given, np.float64), d, c, exponent, out)
    return out.reshape(concentration.shape)


def standard_gamma(g: Draws, concentration: np.ndarray) -> np.ndarray:
    if concentration.dtype not in _FLOATS:
        raise unsupported("gamma_cpu", concentration.dtype)
    with np.errstate(over="ignore"):
        found = _gammas(g, concentration).astype(concentration.dtype)
    # fmax: of NaN too the least number becomes, as in PyTorch.
    return np.fmax(found, np.finfo(found.dtype).tiny)


def dirichlet(g: Draws, concentration: np.ndarray) -> np.ndarray:
    dtype = concentration.dtype
    if dtype not in _FLOATS:
        raise unsupported("dirichlet", dtype)
    # Whatever the dtype, in float64.
    gammas = np.fmax(_gammas(g, concentration.astype(np.float64)), np.finfo(np.float64).tiny)
    # One after the other: NumPy's sum would add in another order.
    total = np.cumsum(gammas, -1)[..., -1:] if gammas.ndim else gammas
    with np.errstate(invalid="ignore"):
        return np.clip((gammas / total).astype(dtype), np.finfo(dtype).tiny, np.nextafter(dtype.type(1), dtype.type(0)))
