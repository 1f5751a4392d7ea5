"""Sampling recipes of PyTorch's CPU kernels where probabilities, weights or rates are given: Bernoulli, multinomial, Poisson, binomial.

Every function takes the source of draws first; `Generator` documents arguments, results and errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.operators.kernels import choosing, drawing, rejecting
from torchgrad_jax.operators.kernels.distributions import (
    FLOATING,
    REAL_OF,
    WIDE_UNSIGNED,
    Draws,
    Shape,
    acc_dtype,
    exponential,
    finish,
    hits,
    in_order,
    name_of,
    number,
    ordered,
    standard_exponential,
    unit,
    unsupported,
)
from torchgrad_jax.runtime.native import handlers

# ---- Bernoulli ------------------------------------------------------------------------------------------------------

_MCG31_MODULUS = 2**31 - 1
_MCG31_MULTIPLIER = 1132489760


def mcg31(seed: int, n: int) -> np.ndarray:
    """`n` states of MKL's MCG31m1, x -> 1132489760 x mod (2**31 - 1), from `seed` on; uint64 of shape (n,)."""
    x = np.empty(n, np.uint64)
    x[:1] = seed % _MCG31_MODULUS or 1
    filled, jump = 1, _MCG31_MULTIPLIER
    while filled < n:
        count = min(filled, n - filled)
        x[filled : filled + count] = x[:count] * np.uint64(jump) % np.uint64(_MCG31_MODULUS)
        jump = jump * jump % _MCG31_MODULUS
        filled += count
    return x


def bernoulli(g: Draws, p: float, shape: Shape, dtype: np.dtype, method: str) -> np.ndarray:
    p = float(p)
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={number(p)}")
    n = math.prod(shape)
    if not n:
        return np.empty(shape, dtype)
    if dtype in REAL_OF or dtype in WIDE_UNSIGNED:
        raise unsupported("bernoulli_scalar_cpu_", dtype)
    hit = mcg31(int(g.random32(1)[0]), n) < p * _MCG31_MODULUS if method == "mkl" else hits(g, n, p)
    return hit.astype(dtype, copy=False).reshape(shape)


def bernoulli_tensor(g: Draws, p: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if p.dtype not in FLOATING:
        raise unsupported("bernoulli_tensor_cpu_p_", p.dtype)
    if dtype in REAL_OF or dtype in WIDE_UNSIGNED:
        raise unsupported("bernoulli_tensor_cpu_self_", dtype)
    acc = acc_dtype(p.dtype)
    q = p.astype(acc, copy=False)
    if q.size and not (np.minimum.reduce(q, None) >= 0 and np.maximum.reduce(q, None) <= 1):  # NaN is neither
        raise RuntimeError(
            "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be improved?  If "
            "so, please report an enhancement request to PyTorch.)"
        )
    return (unit(g, p.size, acc).reshape(p.shape) < q).astype(dtype, copy=False)


# ---- multinomial ----------------------------------------------------------------------------------------------------

_IMPROPER = "probability tensor contains either `inf`, `nan` or element < 0"
_NOTHING = "invalid multinomial distribution (sum of probabilities <= 0)"


def check_multinomial(probs: Any, num_samples: int, replacement: bool) -> None:
    """See `Generator.multinomial`. probs: of the weights' shape and dtype."""
    if probs.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if probs.dtype not in FLOATING:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {name_of(probs.dtype)}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > probs.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if probs.shape[-1] > 2**24:
        raise RuntimeError("number of categories cannot exceed 2^24")


def multinomial(g: Draws, probs: np.ndarray, num_samples: int, replacement: bool, order: Sequence[int] | None = None) -> np.ndarray:
    check_multinomial(probs, num_samples, replacement)
    rows = np.atleast_2d(probs).astype(acc_dtype(probs.dtype), copy=False)
    out_shape = (*probs.shape[:-1], num_samples)
    if not rows.shape[0]:
        return np.empty(out_shape, np.int64)
    if replacement and num_samples > 1:
        return _multinomial_inverse(g, rows, num_samples).reshape(out_shape)
    if not rows.shape[1]:
        raise RuntimeError(_NOTHING)
    quick = num_samples == 1 and probs.dtype.char in "fd" and probs.flags.c_contiguous and in_order(order)
    found = (drawing if quick else choosing).condition(rows)
    if found != choosing.FINE:
        raise RuntimeError(_IMPROPER if found == choosing.IMPROPER else _NOTHING)
    if quick:
        places = np.empty(len(rows), np.int64)
        drawing.choose(rows, standard_exponential(g, rows.size), places)
        return places.reshape(out_shape)
    # As `choosing.choose`, and more than one in their order.
    q = ordered(probs.shape, order, lambda shape: exponential(g, shape, probs.dtype, 1.0))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        key = (probs / q).astype(probs.dtype).reshape(rows.shape)
    if num_samples == 1:
        return key.argmax(-1).reshape(out_shape)
    key = np.ascontiguousarray(key, rows.dtype)
    found = handlers.ordered(key, num_samples, True, False)
    places = np.argsort(-key, axis=-1, kind="stable")[:, :num_samples] if found is None else found[1]
    return places.reshape(out_shape)


def _multinomial_inverse(g: Draws, rows: np.ndarray, num_samples: int) -> np.ndarray:
    """Samples with replacement by inversion of each row's cumulative distribution."""
    out = np.empty((len(rows), num_samples), np.int64)
    found = g.rejecting.invert(g, np.ascontiguousarray(rows), out, np.empty(rows.shape[1], rows.dtype))
    if found == rejecting.NEGATIVE:
        raise RuntimeError("invalid multinomial distribution (encountering probability entry < 0)")
    if found == rejecting.INFINITE:
        raise RuntimeError("invalid multinomial distribution (encountering probability entry = infinity or NaN)")
    if found == rejecting.NOTHING:
        raise RuntimeError(_NOTHING)
    return out


# ---- Poisson, binomial ----------------------------------------------------------------------------------------------


def poisson(g: Draws, rate: np.ndarray) -> np.ndarray:
    if rate.dtype not in FLOATING:
        raise unsupported("poisson_cpu", rate.dtype)
    if not (rate >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    counts = np.empty(rate.size)
    g.rejecting.poissons(g, np.ascontiguousarray(rate, np.float64).reshape(-1), counts)
    return finish(counts, rate.dtype, rate.shape)


def binomial(g: Draws, count: np.ndarray, prob: np.ndarray) -> np.ndarray:
    for what, dtype in (("count", count.dtype), ("prob", prob.dtype)):
        if dtype not in FLOATING:
            raise ValueError(f"binomial only supports floating-point dtypes for {what}, got: {name_of(dtype)}")
    if count.dtype != prob.dtype:
        raise RuntimeError(f"Found dtype {name_of(prob.dtype)} but expected {name_of(count.dtype)}")
    if count.dtype.itemsize == 2:
        raise unsupported("binomial_cpu", count.dtype)
    shape = broadcast_shapes(count.shape, prob.shape)
    n, p = (np.broadcast_to(a, shape).astype(np.float64).reshape(-1) for a in (count, prob))
    found = np.empty(n.size)
    g.rejecting.binomials(g, n, p, found)
    return finish(found, count.dtype, shape)
