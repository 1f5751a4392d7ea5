"""Sampling recipes of PyTorch's CPU kernels where probabilities, weights or rates are given: Bernoulli, multinomial, Poisson, binomial.

Every function takes the source of draws first; `Generator` documents arguments, results and errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.operators.kernels import choosing, drawing
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
    unit64,
    unsupported,
)

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
    if not ((q >= 0) & (q <= 1)).all():
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
    return np.argsort(-key.astype(rows.dtype), axis=-1, kind="stable")[:, :num_samples].reshape(out_shape)


def _multinomial_inverse(g: Draws, rows: np.ndarray, num_samples: int) -> np.ndarray:
    """Samples with replacement by inversion of each row's cumulative distribution."""
    out = np.empty((len(rows), num_samples), np.int64)
    for i, row in enumerate(rows):
        if not (row >= 0).all():
            raise RuntimeError("invalid multinomial distribution (encountering probability entry < 0)")
        if not (row < np.inf).all():
            raise RuntimeError("invalid multinomial distribution (encountering probability entry = infinity or NaN)")
        cumulative = np.cumsum(row, dtype=row.dtype)
        if not row.size or not cumulative[-1] > 0:
            raise RuntimeError(_NOTHING)
        cumulative /= cumulative[-1]
        cumulative[-1] = 1
        out[i] = np.searchsorted(cumulative.astype(np.float64), unit64(g, num_samples), side="left")
    return out


def _poisson_small(rate: float, draw: Iterator[float]) -> int:
    """Knuth's product of uniforms (The Art of Computer Programming, vol. 2, 3.4.1)."""
    limit, product, count = math.exp(-rate), next(draw), 0
    while product > limit:
        product *= next(draw)
        count += 1
    return count


def _poisson_large(rate: float, draw: Iterator[float]) -> int:
    """Transformed rejection, algorithm PTRS of Hormann (Insurance: Mathematics and Economics 12, 1993)."""
    log_rate = math.log(rate)
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inv_alpha = 1.1239 + 1.1328 / (b - 3.4)
    vr = 0.9277 - 3.6224 / (b - 2)
    while True:
        u = next(draw) - 0.5
        v = next(draw)
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + rate + 0.43) if us else -1
        if us >= 0.07 and v <= vr:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        accept = math.log(v) if v else -math.inf
        if accept + math.log(inv_alpha) - math.log(a / (us * us) + b) <= k * log_rate - rate - math.lgamma(k + 1):
            return k


def poisson(g: Draws, rate: np.ndarray) -> np.ndarray:
    if rate.dtype not in FLOATING:
        raise unsupported("poisson_cpu", rate.dtype)
    if not (rate >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    counts = []
    with g.lookahead() as draw:
        for lam in rate.astype(np.float64).reshape(-1).tolist():
            counts.append(_poisson_large(lam, draw) if lam >= 10 else _poisson_small(lam, draw) if lam > 0 else 0)
    return finish(np.array(counts, np.float64), rate.dtype, rate.shape)


# ---- binomial -------------------------------------------------------------------------------------------------------


def _binomial_few(count: float, p: float, draw: Iterator[float]) -> int:
    """The successes counted by waiting times (Devroye, Non-Uniform Random Variate Generation, X.4.3)."""
    log_failure, waited, successes = math.log1p(-p), 0.0, 0
    while True:
        u = next(draw)
        waited += math.ceil(math.log(u) / log_failure) if u else math.inf
        if waited > count:
            return successes
        successes += 1


_STIRLING = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211, 0.0138761288230707, 0.0118967099458917,
    0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling_tail(k: float) -> float:
    """log k! less Stirling's approximation of it."""
    if k <= 9:
        return _STIRLING[int(k)]
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


def _binomial_many(count: float, p: float, draw: Iterator[float]) -> int:
    """Transformed rejection with squeeze, algorithm BTRS of Hormann (J. Statistical Computation and Simulation 46, 1993)."""
    deviation = math.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = count * p + 0.5
    v_r = 0.92 - 4.2 / b
    odds = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = math.floor((count + 1) * p)
    while True:
        u = next(draw) - 0.5
        v = next(draw)
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + c) if us else -1
        if us >= 0.07 and v <= v_r:
            return k
        if k < 0 or k > count:
            continue
        v = math.log(v * alpha / (a / (us * us) + b)) if v else -math.inf
        bound = (
            (m + 0.5) * math.log((m + 1) / (odds * (count - m + 1)))
            + (count + 1) * math.log((count - m + 1) / (count - k + 1))
            + (k + 0.5) * math.log(odds * (count - k + 1) / (k + 1))
            + _stirling_tail(m) + _stirling_tail(count - m) - _stirling_tail(k) - _stirling_tail(count - k)
        )  # fmt: skip
        if v <= bound:
            return k


def _binomial_of(count: float, p: float, draw: Iterator[float]) -> float:
    """Successes in `count` trials; of the rarer of both outcomes, so that p is at most a half."""
    if count <= 0 or p <= 0:
        return 0.0
    if p >= 1:
        return count
    if not p <= 0.5:
        return math.nan if math.isnan(p) else count - _binomial_of(count, 1 - p, draw)
    return _binomial_many(count, p, draw) if count * p >= 10 else _binomial_few(count, p, draw)


def binomial(g: Draws, count: np.ndarray, prob: np.ndarray) -> np.ndarray:
    for what, dtype in (("count", count.dtype), ("prob", prob.dtype)):
        if dtype not in FLOATING:
            raise ValueError(f"binomial only supports floating-point dtypes for {what}, got: {name_of(dtype)}")
    if count.dtype != prob.dtype:
        raise RuntimeError(f"Found dtype {name_of(prob.dtype)} but expected {name_of(count.dtype)}")
    if count.dtype.itemsize == 2:
        raise unsupported("binomial_cpu", count.dtype)
    shape = broadcast_shapes(count.shape, prob.shape)
    n, p = (np.broadcast_to(a, shape).astype(np.float64).reshape(-1).tolist() for a in (count, prob))
    with g.lookahead() as draw:
        found = [_binomial_of(*pair, draw) for pair in zip(n, p, strict=True)]
    return finish(np.array(found, np.float64), count.dtype, shape)
