"""Operators that run along a dimension: cumulative sums, products, extremes; and the product, whose gradient does."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_placing, numpy_running
from torchgrad_jax.declaration.converting import convert, where, wide, zeros_like
from torchgrad_jax.declaration.numpy_running import ACCUMULATORS, LONG
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.operators.kernels import along, loops
from torchgrad_jax.operators.reduction import keep, spread, title, wrap_dims, wrap_one
from torchgrad_jax.runtime.compiling.platforms import by_platform


def _accumulated(name: str, x: Any, dtype: Any) -> Any:
    if name != "prod" and dtype == np.bool_:
        raise NotImplementedError(f"\"{name}_out_cpu\" not implemented for 'Bool'")
    return convert(x, dtype or (np.dtype(np.int64) if dtypes.category(x.dtype) <= dtypes.INT else np.dtype(x.dtype)))


def _running(x: Any, dim: int, function: Callable[[Any, Any], Any], identity: float, whole: Callable[..., Any], reverse: bool = False) -> Any:
    """`function` folded along `dim`, every prefix kept.

    On CPU a loop over the slices, in PyTorch's wider type: it is 2 to 10 times faster there than `whole`, XLA's own form in
    log(n) passes, which other devices run.
    """
    if not x.ndim or not x.size:
        return x
    dim = wrap_one(dim, x.ndim)
    sums = np.dtype(ACCUMULATORS.get(np.dtype(x.dtype).name, x.dtype))

    def loop(a: Any) -> Any:
        rows = jnp.moveaxis(a, dim, 0)

        def step(carry: Any, row: Any) -> Any:
            carry = function(carry, row.astype(sums))
            return carry, carry.astype(a.dtype)

        start = jnp.full(rows.shape[1:], identity, sums)
        return jnp.moveaxis(loops.scan(step, start, rows, reverse=reverse)[1], 0, dim)

    return by_platform(x, cpu=loop, default=lambda a: whole(a, axis=dim, reverse=reverse))


def _said_sum(x: Any, dim: int, reverse: bool) -> list[Any]:
    return [_running(x, dim, lax.add, 0, lax.cumsum, reverse)]


def _said_product(x: Any, dim: int, reverse: bool) -> list[Any]:
    return [_running(x, dim, lax.mul, 1, lax.cumprod, reverse)]


_SUM, _PRODUCT = along.scan("running_sum", _said_sum), along.scan("running_product", _said_product)


def running_sum(x: Any, dim: int, reverse: bool = False) -> Any:
    """Every prefix's sum along `dim`."""
    return (_SUM if along.fits(x) else _said_sum)(x, dim=dim, reverse=reverse)[0]


def _running_product(x: Any, dim: int, reverse: bool = False) -> Any:
    return (_PRODUCT if along.fits(x) else _said_product)(x, dim=dim, reverse=reverse)[0]


@op("cumsum(Tensor self, int dim, *, dtype? dtype=None)", inplace=True, out="dtype", numpy=numpy_running.cumsum, numpy_vjp=numpy_running.cumsum_vjp,
    grads={"self": lambda grad, dim: running_sum(grad, dim, reverse=True)})  # fmt: skip
def cumsum(x: Any, dim: int, dtype: Any) -> Any:
    """Sums of the elements up to each along `dim`. Integers and booleans are added as int64."""
    wrap_one(dim, x.ndim)
    return running_sum(_accumulated("cumsum", x, dtype), dim)


def _by_quotient(grad: Any, x: Any, zeros: Any, quotient: Callable[..., Any], exact: Callable[..., Any]) -> Any:
    """A product's gradient as PyTorch computes it: from the result divided by each factor, but where `zeros` tells that one of the factors is 0."""

    def both(grad: Any, x: Any) -> Any:
        # What is not chosen must have a derivative, too.
        return where(zeros, exact(grad, x), quotient(grad, where(zeros, jnp.ones_like(x), x)))

    return lax.cond(zeros.any(), both, quotient, grad, x)


def _cumprod_gradient(grad: Any, self: Any, result: Any, dim: int) -> Any:
    if not self.ndim or not self.size:
        return convert(grad, self.dtype)
    x = convert(self, np.dtype(grad.dtype))
    result = convert(result, x.dtype)
    return (_PRODUCT_GRAD if along.fits(grad, x, result) else _said_product_grad)(grad, x, result, dim=dim)[0].astype(self.dtype)


def _said_product_grad(grad: Any, x: Any, result: Any, dim: int, reverse: bool = False) -> list[Any]:
    dim = wrap_one(dim, x.ndim)
    sums = running_sum(grad * result.conj(), dim, reverse=True)
    zeros = (x == 0).any(dim, keepdims=True)
    return [_by_quotient(grad, x, zeros, lambda grad, x: sums / x.conj(), lambda grad, x: _cumprod_without_quotient(grad, x, dim))]


def _cumprod_without_quotient(grad: Any, x: Any, dim: int) -> Any:
    """The product of what is before an element, times s with s[k] = grad[k] + x[k + 1] s[k + 1]."""
    grads, rows = jnp.moveaxis(grad, dim, 0), jnp.moveaxis(x.conj(), dim, 0)
    one = jnp.ones((1, *rows.shape[1:]), rows.dtype)

    def step(after: Any, both: Any) -> Any:
        after = both[0] + both[1] * after
        return after, after

    following = loops.scan(step, jnp.zeros(rows.shape[1:], rows.dtype), (grads, jnp.concatenate([rows[1:], one])), reverse=True)[1]
    return jnp.moveaxis(jnp.concatenate([one, _running_product(rows[:-1], 0)]) * following, 0, dim)


_PRODUCT_GRAD = along.scan("running_product_grad", _said_product_grad)


@op("cumprod(Tensor self, int dim, *, dtype? dtype=None)", inplace=True, out="dtype", trivial=lambda x: x.size < 2, grads={"self": _cumprod_gradient},
    attributes="dim", numpy=numpy_running.cumprod, numpy_grads=numpy_running.cumprod_grads)  # fmt: skip
def cumprod(x: Any, dim: int, dtype: Any) -> Any:
    """Products of the elements up to each along `dim`. Integers and booleans are multiplied as int64."""
    wrap_one(dim, x.ndim)
    return _running_product(_accumulated("cumprod", x, dtype), dim)


# ---------------------------------------------------------------------- products


def _others(x: Any) -> Any:
    """For each element the product of the others along the last dimension: of those before it and those after it, right where there are zeros."""
    count = x.shape[-1]
    if count < LONG:
        ones = jnp.ones((*x.shape[:-1], 1), x.dtype)
        before = _running_product(x[..., :-1], -1)
        after = _running_product(x[..., 1:], -1, reverse=True)
        return jnp.concatenate([ones, before], -1) * jnp.concatenate([after, ones], -1)
    columns = math.isqrt(count - 1) + 1
    rows = -(-count // columns)
    lead = [(0, 0, 0)] * (x.ndim - 1)
    table = lax.pad(x, jnp.ones((), x.dtype), [*lead, (0, rows * columns - count, 0)]).reshape(*x.shape[:-1], rows, columns)
    found = _others(table) * _others(lax.reduce_prod(table, (x.ndim,)))[..., None]
    return found.reshape(*x.shape[:-1], rows * columns)[..., :count]


def _prod_gradient(grad: Any, self: Any, result: Any, dim: Any = None, keepdim: bool = False) -> Any:
    dims = wrap_dims(dim, self.ndim)
    if not self.ndim:
        return convert(grad, self.dtype)
    if not self.size:
        return zeros_like(self)
    last = tuple(range(self.ndim - len(dims), self.ndim))
    whole = wide(spread(result, self.shape, dim, keepdim))

    def exact(grad: Any, x: Any) -> Any:
        moved = jnp.moveaxis(x, dims, last)
        others = jnp.moveaxis(_others(moved.reshape(*moved.shape[: last[0] if last else None], -1)).reshape(moved.shape), last, dims)
        return grad * others.conj()

    x = wide(convert(self, np.dtype(grad.dtype)))
    grad = wide(spread(grad, self.shape, dim, keepdim))
    return _by_quotient(grad, x, (x == 0).any(), lambda grad, x: grad * (whole / x).conj(), exact).astype(self.dtype)


def _prod(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The product over `dim` (one int; all where None). Integers and booleans are multiplied as int64."""
    x = _accumulated("prod", x, dtype)
    dims = wrap_dims(dim, x.ndim)
    if x.dtype == np.bool_:
        return keep(lax.reduce_and(x, dims), dims, keepdim)
    return keep(lax.reduce_prod(wide(x), dims).astype(x.dtype), dims, keepdim)


op("prod(Tensor self, *, dtype? dtype=None)", method=False, toplevel=False, trivial=lambda x: not x.ndim,
   grads={"self": lambda grad, self, result: _prod_gradient(grad, self, result)}, numpy_grads=numpy_running.prod_grads)(_prod)  # fmt: skip
op("prod_dim(Tensor self, int dim, bool keepdim=False, *, dtype? dtype=None)", method=False, toplevel=False, node="ProdBackward1",
   trivial=lambda x: not x.ndim, grads={"self": _prod_gradient}, attributes="dim keepdim", numpy_grads=numpy_running.prod_grads)(_prod)  # fmt: skip


# ---------------------------------------------------------------------- sums of exponentials


def log_add_exp(x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y)) without overflow. Complex: the imaginary part is not brought into one turn, as PyTorch's.

    No custom derivative, as JAX's own has: a scan forgets it where it is differentiated twice.
    """
    swap = y.real < x.real
    low, high = where(swap, y, x), where(swap, x, y)
    nothing = (low.real == -jnp.inf) & (high.real == -jnp.inf)
    # inf - inf has no value, but the larger one is the sum.
    apart = where(nothing | ((low == high) & jnp.isinf(low.real)), zeros_like(low), low - high)
    if x.dtype.kind == "c":  # XLA's exponential of an infinity has no value where the other part is infinite too
        apart = where(((high.real == jnp.inf) & (low.real < jnp.inf)) | (low.real == -jnp.inf), jnp.asarray(-jnp.inf, low.dtype), apart)
    found = where(nothing, jnp.asarray(-jnp.inf, low.dtype), high + jnp.log1p(lax.exp(apart)))
    if x.dtype.kind != "c":
        return found
    return where((x != x) | (y != y), jnp.asarray(complex(jnp.nan, jnp.nan), low.dtype), found)


def _log_add_exp_whole(a: Any, axis: int, reverse: bool) -> Any:
    return lax.associative_scan(log_add_exp, a, axis=axis, reverse=reverse)


def _said_log_sum(x: Any, dim: int, reverse: bool = False) -> list[Any]:
    return [_running(x, dim, log_add_exp, -np.inf, _log_add_exp_whole, reverse)]


def _said_log_sum_grad(grad: Any, x: Any, result: Any, dim: int, reverse: bool = False) -> list[Any]:
    """s[i] = grad[i] + exp(result[i] - result[i + 1]) s[i + 1]: of an infinite sum nothing comes back."""
    grads, rows, sums = [jnp.moveaxis(a, dim, 0) for a in (grad, x, result)]

    def step(carry: Any, now: Any) -> Any:
        after, following = carry
        grad, x, own = now
        found = where(own == jnp.inf, 0 * after, grad + after * jnp.exp(own - following) + 0 * own)
        return (found, own), found * jnp.exp(x - own)

    start = zeros_like(grads[0]), jnp.full_like(sums[0], jnp.inf)
    return [jnp.moveaxis(loops.scan(step, start, (grads, rows, sums), reverse=True)[1], 0, dim)]


_LOG_SUM, _LOG_SUM_GRAD = along.scan("running_log_sum", _said_log_sum), along.scan("running_log_sum_grad", _said_log_sum_grad)


def _log_sum_grad(grad: Any, self: Any, result: Any, dim: int) -> Any:
    if along.fits(grad, self, result):
        return _LOG_SUM_GRAD(grad, self, result, dim=dim)[0]
    return jax.vjp(lambda x: _said_log_sum(x, dim)[0], self)[1](grad.conj())[0].conj()


@op("logcumsumexp(Tensor self, int dim)", attributes="dim", grads={"self": _log_sum_grad}, numpy=numpy_running.logcumsumexp,
    numpy_grads=numpy_running.logcumsumexp_grads)  # fmt: skip
def logcumsumexp(x: Any, dim: int) -> Any:
    """log(cumsum(exp(self))) along `dim`, without overflow."""
    wrap_one(dim, x.ndim)
    if not dtypes.is_float(np.dtype(x.dtype)):
        raise NotImplementedError(f"\"logcumsumexp_out_cpu\" not implemented for '{title(x)}'")
    return (_LOG_SUM if along.fits(x) else _said_log_sum)(x, dim=dim)[0]


# ---------------------------------------------------------------------- running extremes


def _said_extreme(x: Any, dim: int, reverse: bool = False, *, at_least: Callable[[Any, Any], Any]) -> list[Any]:
    """The extreme up to each element and its last place. A nan is the extreme from then on."""
    dim = wrap_one(dim, x.ndim)
    places = lax.broadcasted_iota(np.int64, x.shape, dim)

    def better(a: Any, b: Any) -> Any:
        (x1, i1), (x2, i2) = a, b
        later = at_least(x2, x1) & (x1 == x1) | (x2 != x2)
        return where(later, x2, x1), where(later, i2, i1)

    def loop(values: Any, indices: Any) -> Any:
        rows, order = jnp.moveaxis(values, dim, 0), jnp.moveaxis(indices, dim, 0)

        def step(carry: Any, row: Any) -> Any:
            carry = better(carry, row)
            return carry, carry

        _, (best, place) = loops.scan(step, (rows[0], order[0]), (rows, order))
        return jnp.moveaxis(best, 0, dim), jnp.moveaxis(place, 0, dim)

    return list(by_platform(x, places, cpu=loop, default=lambda v, i: lax.associative_scan(better, (v, i), axis=dim)))


def _extreme_grad(grad: Any, indices: Any, dim: int) -> Any:
    return along.put(grad, indices, dim, along.SUM, length=grad.shape[dim]) if grad.ndim and grad.size else grad


def _declare_extreme(name: str, at_least: Any) -> None:
    said = partial(_said_extreme, at_least=at_least)
    loop = along.scan(f"running_{name[3:]}", said, results=2, places=True)

    def extreme(x: Any, dim: int) -> Any:
        wrap_one(dim, x.ndim)
        if not x.ndim or not x.size:
            return x, jnp.zeros(x.shape, np.int64)
        return tuple((loop if along.fits(x) else said)(x, dim=dim))

    def validate(x: Any, dim: int) -> None:
        wrap_one(dim, x.ndim)
        if x.dtype.kind == "c":
            raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{title(x)}'")

    extreme.__doc__ = f"The {name[3:]} of the elements up to each along `dim`, and its last place. A nan stays."
    op(f"{name}(Tensor self, int dim)", results=("values", "indices"), validate=validate, keeps=("self",), grads={"self": _extreme_grad},
       numpy=getattr(numpy_running, name), numpy_grads=numpy_placing.put_back_sums)(extreme)  # fmt: skip


_declare_extreme("cummax", lax.ge)
_declare_extreme("cummin", lax.le)


@op("_vander(Tensor self, int count, bool increasing)", differentiable=False, method=False, toplevel=False, numpy=numpy_running.vander)
def vander(x: Any, count: int, increasing: bool) -> Any:
    """The powers 0 ... `count` - 1 of each element along a new last dimension, or from the last one down."""
    dtype = x.dtype if dtypes.is_float(np.dtype(x.dtype)) else np.dtype(np.int64)
    made = jnp.ones((*x.shape, min(count, 1)), dtype)
    if count > 1:
        factors = jnp.broadcast_to(x.astype(dtype)[..., None], (*x.shape, count - 1))
        made = jnp.concatenate([made, _running_product(factors, x.ndim)], -1)
    return made if increasing else lax.rev(made, (x.ndim,))
