"""Samples that take as many draws as it happens: normal ones, and of gamma, Poisson, binomial and multinomial distributions, by the algorithms
of PyTorch's CPU kernels. One after the other; in compiled modules by loops of C: `rejecting.pxd`.

But for the first, each function takes a `Generator`, and writes into its last array; all are float64 of shape (n,), where nothing else is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from torchgrad_jax.operators.kernels import box_muller, twister

# What is found of a row of weights: fine; some are negative or NaN; one is infinite; there is nothing to choose.
FINE, NEGATIVE, INFINITE, NOTHING = range(4)


# ---- normal ---------------------------------------------------------------------------------------------------------


def stream(source: Any, out: Any) -> None:
    """Standard normals, in pairs from two 53-bit uniforms; an odd one out stays cached in the state."""
    cached, n = source._next_normal, len(out)
    pairs = (n - (cached is not None) + 1) // 2
    u = source.samples(twister.WIDE, 2 * pairs)
    z = np.empty(2 * pairs + (cached is not None))
    body = z
    if cached is not None:
        z[0] = cached
        body = z[1:]
    if n >= 64:
        radius = np.sqrt(-2.0 * np.log1p(-u[1::2]))
        theta = 2.0 * math.pi * u[0::2]
        body[0::2], body[1::2] = radius * np.cos(theta), radius * np.sin(theta)
    # Small samples, and the pair that may leave its second member in the state, are the C library's.
    if pairs:
        _pairs(u if n < 64 else u[-2:], body if n < 64 else body[-2:])
    if n:
        source._next_normal = float(z[n]) if z.size > n else None
    out[:] = z[:n]


def draw_normals(source: Any, out: Any) -> None:
    """Fill `out` (n,), float32, n >= 16, with normal samples of the next draws of a `numpy.random.MT19937`: see `normals.drawn`."""
    tail = np.empty(16, np.float32)
    twister.draw(source, twister.UNIT, out, 0, 0)
    whole = len(out) - len(out) % 16
    if whole < len(out):
        twister.draw(source, twister.UNIT, tail, 0, 0)
    box_muller.normals(out[:whole], out[:whole])
    if whole < len(out):
        box_muller.normals(tail, tail)
        out[len(out) - 16 :] = tail


def _pairs(uniform: Any, out: Any) -> None:
    """Fill `out` with as many standard normals as there are float64 uniforms, in pairs, by the C library, from which NumPy's functions may differ in
    the last place."""
    for i in range(0, len(uniform), 2):
        radius = math.sqrt(-2.0 * math.log1p(-uniform[i + 1]))
        angle = 2.0 * math.pi * uniform[i]
        out[i], out[i + 1] = radius * math.cos(angle), radius * math.sin(angle)


def _normal(source: Any, draw: Iterator[float]) -> float:
    """A standard normal from two uniforms; the second of the pair stays in the state."""
    cached = source._next_normal
    if cached is not None:
        source._next_normal = None
        return cached
    theta = 2.0 * math.pi * next(draw)
    radius = math.sqrt(-2.0 * math.log1p(-next(draw)))
    source._next_normal = radius * math.sin(theta)
    return radius * math.cos(theta)


# ---- gamma ----------------------------------------------------------------------------------------------------------


def _cubed_normal(source: Any, d: float, c: float, draw: Iterator[float]) -> float:
    """Marsaglia and Tsang (ACM Trans. Math. Software 26(3), 2000): a gamma sample of concentration d + 1/3, over d; c = 1 / sqrt(9 d)."""
    while True:
        x = _normal(source, draw)
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


def gammas(source: Any, concentration: Any, d: Any, c: Any, exponent: Any, out: Any) -> None:
    """Gamma samples of rate 1. d, c: see `_cubed_normal`, of the concentration, or of one more where it is less than 1: then a uniform one to the
    power of `exponent` is another factor."""
    with source.lookahead() as draw:
        for i, (a, d_, c_, e) in enumerate(zip(*(x.tolist() for x in (concentration, d, c, exponent)), strict=True)):
            if a == 0:
                out[i] = 0.0
                continue
            scale = _power(1.0 - next(draw), e) if a < 1 else 1.0
            out[i] = scale * d_ * _cubed_normal(source, d_, c_, draw)


# ---- Poisson --------------------------------------------------------------------------------------------------------


def _poisson_small(rate: float, draw: Iterator[float]) -> int:
    """Knuth's product of uniforms (The Art of Computer Programming, vol. 2, 3.4.1)."""
    limit, product, count = math.exp(-rate), next(draw), 0
    while product > limit:
        product *= next(draw)
        count += 1
    return count


def _floor(x: float) -> float:
    return float(math.floor(x)) if math.isfinite(x) else x


def _poisson_large(rate: float, draw: Iterator[float]) -> float:
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
        k = _floor((2 * a / us + b) * u + rate + 0.43) if us else -1.0
        if us >= 0.07 and v <= vr:
            return k
        if not k >= 0 or (us < 0.013 and v > us):
            continue
        accept = math.log(v) if v else -math.inf
        if accept + math.log(inv_alpha) - math.log(a / (us * us) + b) <= k * log_rate - rate - math.lgamma(k + 1):
            return k


def poissons(source: Any, rate: Any, out: Any) -> None:
    """Poisson samples of these rates, which are not negative."""
    with source.lookahead() as draw:
        for i, lam in enumerate(rate.tolist()):
            out[i] = _poisson_large(lam, draw) if lam >= 10 else _poisson_small(lam, draw) if lam > 0 else 0


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


def _binomial_many(count: float, p: float, draw: Iterator[float]) -> float:
    """Transformed rejection with squeeze, algorithm BTRS of Hormann (J. Statistical Computation and Simulation 46, 1993)."""
    deviation = math.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = count * p + 0.5
    v_r = 0.92 - 4.2 / b
    odds = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = _floor((count + 1) * p)
    while True:
        u = next(draw) - 0.5
        v = next(draw)
        us = 0.5 - abs(u)
        k = _floor((2 * a / us + b) * u + c) if us else -1.0
        if us >= 0.07 and v <= v_r:
            return k
        if not k >= 0 or k > count:
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
    """Successes in `count` trials; of the rarer of both outcomes, so that p is at most a half. Of NaN it is NaN."""
    if math.isnan(count) or math.isnan(p):
        return math.nan
    if count <= 0 or p <= 0:
        return 0.0
    if p >= 1:
        return count
    if p > 0.5:
        return count - _binomial_of(count, 1 - p, draw)
    return _binomial_many(count, p, draw) if count * p >= 10 else _binomial_few(count, p, draw)


def binomials(source: Any, count: Any, probability: Any, out: Any) -> None:
    """How many of `count` trials succeed."""
    with source.lookahead() as draw:
        for i, (n, p) in enumerate(zip(count.tolist(), probability.tolist(), strict=True)):
            out[i] = _binomial_of(n, p, draw)


# ---- multinomial ----------------------------------------------------------------------------------------------------


def invert(source: Any, rows: Any, places: Any, sums: Any) -> int:
    """Indices, with replacement, by inversion of each row's cumulative distribution: as many for a row of weights `rows`, (m, n), of float32 or
    float64, as `places`, int64, has in it. sums: memory for one row. Returns what is found of the first row that is not fine, at which it ends."""
    for row, out in zip(rows, places, strict=True):
        if not (row >= 0).all():
            return NEGATIVE
        if not (row < np.inf).all():
            return INFINITE
        np.cumsum(row, dtype=row.dtype, out=sums)
        if not row.size or not sums[-1] > 0:
            return NOTHING
        sums /= sums[-1]
        sums[-1] = 1
        out[:] = np.searchsorted(sums.astype(np.float64), source.samples(twister.WIDE, len(out)), side="left")
    return FINE
