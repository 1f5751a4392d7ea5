"""Sums, means, extremes, norms; sorting and searching; cumulative operators."""

from __future__ import annotations

import jax
from jax import numpy as jnp

from compat_suite.records.record import REAL, Make, Record, each, given

vectors = each((5,))


def reduced(make: Make):
    """All of a tensor, one dimension, several, and none."""
    yield make(3, 4)
    yield make()
    yield make(2, 3, 4), {"dim": 1}
    yield make(2, 3, 4), {"dim": (0, -1), "keepdim": True}


def along(make: Make):
    """One dimension, of which the elements differ."""
    yield make.apart(3, 4), {"dim": 1}
    yield make.apart(2, 3, 2), {"dim": -2, "keepdim": True}


def along_dim(make: Make):
    """A dimension by its number."""
    yield make(3, 4), 1
    yield make(2, 3, 2), -2


def apart_dim(make: Make):
    """A dimension by its number, of elements that differ."""
    yield make.apart(3, 4), 1
    yield make.apart(2, 3, 2), 0


def spread(make: Make):
    """Dimensions with the correction that is made."""
    yield make(3, 4)
    yield make(3, 4), {"dim": 1, "correction": 0}
    yield make(2, 3, 4), {"dim": (0, 2), "keepdim": True, "correction": 2}


def truths(make: Make):
    """Truth values, and numbers among which are zeros."""
    yield make.bools(3, 4)
    yield make.bools(3, 4), {"dim": 1}
    yield make.integers(3, 4, high=2), {"dim": 0, "keepdim": True}


def norms(make: Make):
    """Orders of vector norms."""
    for order in (2, 1, 3.5, float("inf"), 0.5):
        yield make(3, 4), {"ord": order, "dim": 1}
    yield make(2, 3), {"ord": 2}


def axes(function):
    """A JAX function that is called with our names of its arguments."""
    return lambda x, dim=None, keepdim=False: function(x, axis=dim, keepdims=keepdim)


def spread_of(function):
    """Variance or deviation with our names of its arguments."""
    return lambda x, dim=None, keepdim=False, correction=1: function(x, axis=dim, keepdims=keepdim, ddof=correction)


def with_mean(function):
    """What is beside the mean, and the mean."""
    return lambda x, dim=None, keepdim=False, correction=1: (function(x, dim, keepdim, correction), jnp.mean(x, axis=dim, keepdims=keepdim))


def both(first, second):
    """A pair of results."""
    return lambda *args, **kwargs: (first(*args, **kwargs), second(*args, **kwargs))


def running(function):
    """Values and indices of a running extreme."""

    def values_and_indices(x, dim):
        values = function(x, axis=dim % x.ndim)
        count = jnp.expand_dims(jnp.arange(x.shape[dim]), [d for d in range(x.ndim) if d != dim % x.ndim])
        return values, jax.lax.cummax(jnp.where(values == x, count, 0), axis=dim % x.ndim)

    return values_and_indices


def sorted_pair(x, dim=-1, descending=False):
    """Values and where they were."""
    order = jnp.argsort(x, axis=dim, descending=descending)
    return jnp.take_along_axis(x, order, dim), order


def largest(x, k, dim=-1):
    """The greatest values and where they were."""
    values, order = sorted_pair(x, dim, True)
    return jax.lax.slice_in_dim(values, 0, k, axis=dim), jax.lax.slice_in_dim(order, 0, k, axis=dim)


def middle(x, dim, keepdim=False):
    """The lower of the middle values and where it was."""
    values, order = sorted_pair(x, dim)
    at = (x.shape[dim] - 1) // 2
    parts = [jax.lax.slice_in_dim(a, at, at + 1, axis=dim) for a in (values, order)]
    return tuple(p if keepdim else jnp.squeeze(p, dim) for p in parts)


def smooth_maximum(x, dim, keepdim=False):
    """log of the sum of exp."""
    top = jnp.max(x.real, axis=dim, keepdims=True)
    found = jnp.log(jnp.sum(jnp.exp(x - top), axis=dim, keepdims=True)) + top
    return found if keepdim else jnp.squeeze(found, dim)


greatest, least = both(axes(jnp.max), axes(jnp.argmax)), both(axes(jnp.min), axes(jnp.argmin))
variance, deviation = spread_of(jnp.var), spread_of(jnp.std)

RECORDS = [
    Record("all", truths, axes(jnp.all), derivatives=0),
    Record("any", truths, axes(jnp.any), derivatives=0),
    Record("amax", reduced, axes(jnp.max), dtypes=REAL),
    Record("amin", reduced, axes(jnp.min), dtypes=REAL),
    Record("aminmax", along, both(axes(jnp.min), axes(jnp.max)), dtypes=REAL),
    Record("argmax", along, axes(jnp.argmax), dtypes=REAL, derivatives=0),
    Record("argmin", along, axes(jnp.argmin), dtypes=REAL, derivatives=0),
    Record("argsort", apart_dim, jnp.argsort, dtypes=REAL, derivatives=0),
    Record("bincount", lambda make: [make.integers(9)], jnp.bincount, dtypes=REAL, derivatives=0),
    Record("bucketize", lambda make: [(make(4, gradient=False), make(5, gradient=False).sort()[0])], lambda x, b: jnp.searchsorted(b, x), dtypes=REAL,
           derivatives=0),
    Record("count_nonzero", lambda make: [make.integers(3, 4, high=2)], jnp.count_nonzero, dtypes=REAL, derivatives=0),
    Record("cummax", apart_dim, running(jax.lax.cummax), dtypes=REAL),
    Record("cummin", apart_dim, running(jax.lax.cummin), dtypes=REAL),
    Record("cumprod", along_dim, jnp.cumprod),
    Record("cumsum", along_dim, jnp.cumsum),
    Record("diff", lambda make: [make(5), (make(3, 4), {"n": 2, "dim": 0})], lambda x, n=1, dim=-1: jnp.diff(x, n=n, axis=dim)),
    Record("linalg.vector_norm", norms, lambda x, ord, dim=None: jnp.linalg.norm(x.reshape(-1) if dim is None else x, ord, dim)),
    Record("logcumsumexp", along_dim, lambda x, dim: jnp.log(jnp.cumsum(jnp.exp(x), axis=dim))),
    Record("logsumexp", lambda make: [(make(3, 4), {"dim": 1}), (make(2, 3), {"dim": 0, "keepdim": True})], smooth_maximum),
    Record("max.reduction_no_dim", lambda make: [make.apart(3, 4)], jnp.max, dtypes=REAL),
    Record("max.reduction_with_dim", along, greatest, dtypes=REAL),
    Record("mean", reduced, axes(jnp.mean)),
    Record("median", along, middle, dtypes=REAL),
    Record("min.reduction_no_dim", lambda make: [make.apart(3, 4)], jnp.min, dtypes=REAL),
    Record("min.reduction_with_dim", along, least, dtypes=REAL),
    Record("nanmean", reduced, axes(jnp.nanmean), dtypes=REAL),
    Record("norm", given(((3, 4), 2), ((3, 4), 1)), lambda x, p: jnp.linalg.norm(x.reshape(-1), p)),
    Record("norm.fro", given(((3, 4), "fro")), jnp.linalg.norm),
    Record("prod", lambda make: [make(3, 4), (make(3, 4), 1)], jnp.prod),
    Record("quantile", lambda make: [(make.apart(7), 0.3), (make.apart(3, 4), make.real(2, low=0.1, high=0.8).detach(), {"dim": 1})],
           lambda x, q, dim=None: jnp.quantile(x, q, axis=dim), dtypes=REAL),
    Record("searchsorted", lambda make: [(make(5, gradient=False).sort()[0], make(2, 3, gradient=False))], jnp.searchsorted, dtypes=REAL,
           derivatives=0),
    Record("sort", lambda make: [make.apart(7), (make.apart(3, 4), {"dim": 0, "descending": True})], sorted_pair, dtypes=REAL),
    Record("std", spread, deviation),
    Record("std.unbiased", given(((3, 4), True), ((5,), False)), lambda x, unbiased: jnp.std(x, ddof=int(unbiased))),
    Record("std_mean", spread, with_mean(deviation)),
    Record("sum", reduced, axes(jnp.sum)),
    Record("topk", lambda make: [(make.apart(7), 3), (make.apart(3, 4), 2, {"dim": 0})], largest, dtypes=REAL),
    Record("trapezoid", lambda make: [make(5), (make(3, 4), make(4))], jnp.trapezoid),
    Record("unique", lambda make: [make.integers(9)], jnp.unique, dtypes=REAL, derivatives=0),
    Record("var", spread, variance),
    Record("var.unbiased", given(((3, 4), True), ((5,), False)), lambda x, unbiased: jnp.var(x, ddof=int(unbiased))),
    Record("var_mean", spread, with_mean(variance)),
]  # fmt: skip
