"""Quantiles, covariance and areas under curves, made of the operators that PyTorch makes them of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.arithmetic import clamp_parts, lerp
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.creation import full_like
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.overloads import matmul, with_number
from torchgrad_jax.functions.reductions import diff, sort, sum_
from torchgrad_jax.functions.views import conj, diagonal, expand, flatten, narrow, real, reshape, select, squeeze, t, transpose, unsqueeze, view

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


# ---------------------------------------------------------------------- quantiles


def _quantile(name: str) -> Callable[..., Tensor]:
    def function(input: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear", out: Any = None) -> Tensor:
        _check_quantile(name, input, q, interpolation)
        axis = None if dim is None else wrap_dim(dim, input._aval.ndim)
        return with_out(name, out, _quantiles(input, q, axis, keepdim, interpolation, name == "nanquantile"))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "The `q`-th quantiles along `dim` (all elements where None). `q` is a number, or a vector: its dimension comes first."
    return function


def _check_quantile(name: str, input: Tensor, q: Any, interpolation: str) -> None:
    if not input._aval.size:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if input._aval.dtype not in (np.float32, np.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if isinstance(q, Tensor):
        if q._aval.ndim > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
        if q._aval.dtype != input._aval.dtype:
            raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
        values = q._read().everything()
        if values is not None and not ((values >= 0) & (values <= 1)).all():
            raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    elif not 0 <= q <= 1:
        raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {float(q):g}")
    if interpolation not in INTERPOLATIONS:
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}")


def _quantiles(input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool) -> Tensor:
    shape = input._aval.shape
    size = (1,) * len(shape) if dim is None else (*shape[:dim], 1, *shape[dim + 1 :])
    if not keepdim or not shape:
        size = () if dim is None else (*shape[:dim], *shape[dim + 1 :])
    rows = flatten(input) if dim is None else input if dim == len(shape) - 1 else transpose(unsqueeze(input, -1), dim, -1)
    count = rows._aval.shape[-1]
    values = view(sort(rows)[0], (*size, count))
    vector = isinstance(q, Tensor) and q._aval.ndim == 1
    rank = _ranks(values, q, count, ignore_nan)
    if interpolation in ("lower", "higher", "nearest"):
        rank = call({"lower": "floor", "higher": "ceil", "nearest": "round"}[interpolation], rank.detach(), *((None,) * (interpolation == "nearest")))
    below = cast(rank.detach(), dtypes.int64)
    made = call("gather", values, -1 + len(size) + 1, below)
    if interpolation in ("linear", "midpoint"):
        weight = full_like(rank, 0.5) if interpolation == "midpoint" else rank - below
        made = lerp(made, call("gather", values, len(size), cast(call("ceil", rank.detach()), dtypes.int64)), weight)
    if vector:
        made = call("_transpose_written", call("_unsqueeze_written", made, 0), 0, len(size) + 1)
    return call("_squeeze_written", made, -1)


def _ranks(values: Tensor, q: Any, count: int, ignore_nan: bool) -> Any:
    """Where the quantiles lie among the sorted values, nan coming last: a fraction for each row and each `q`."""
    nan: Any = call("isnan", values.detach())
    if ignore_nan:
        last = cast(call("logical_not", nan).sum(-1, keepdim=True) - 1, values.dtype)
        rank = q * last
        return rank.masked_fill(rank.detach() < 0, 0)
    if not isinstance(q, Tensor):
        q = full_like(select(reshape(values.detach(), (-1,)), 0, 0), q)
    rank = with_number("mul", q, count - 1)
    any_nan = call("any", nan, -1, True)
    rank = expand(rank, (*values._aval.shape[:-1], q._aval.size))
    return rank.masked_fill(any_nan, count - 1)


quantile, nanquantile = _quantile("quantile"), _quantile("nanquantile")
public("torch.quantile", "torch.Tensor.quantile")(quantile)
public("torch.nanquantile", "torch.Tensor.nanquantile")(nanquantile)


# ---------------------------------------------------------------------- covariance


@public("torch", "torch.Tensor")
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariance matrix of a matrix's rows; of a vector, its variance. RuntimeError for more dimensions, or weights that do not fit."""
    x: Any = input
    if x._aval.ndim > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {x._aval.ndim} dimensions")
    if x._aval.dtype == np.bool_:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = x if x._aval.ndim == 2 else view(x, (1, -1))
    count = x._aval.shape[1]
    f: Any = fweights
    a: Any = aweights
    _check_weights("fweights", f, count)
    _check_weights("aweights", a, count)
    weights = f if a is None else a if f is None else f * a
    if weights is None:
        mean, factor = x.sum(1) / count, count - correction
    else:
        total = weights.sum()
        mean = (x * weights).sum(1) / total
        if not correction:
            factor = total
        elif a is None:
            factor = total - correction
        else:
            factor = total - with_number("mul", (weights * a).sum(), correction) / total
    centred = x - unsqueeze(mean, 1)
    right = t(centred if weights is None else centred * weights)
    product = matmul(centred, conj(right))
    if float(factor) <= 0:
        warnings.warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.", stacklevel=2)
        factor = 0
    return squeeze(product / factor)


def _check_weights(name: str, weights: Any, count: int) -> None:
    if weights is None:
        return
    aval, whole = weights._aval, name == "fweights"
    if aval.ndim > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {aval.ndim} dimensions")
    if (aval.dtype.kind not in "iu") if whole else not dtypes.of(aval.dtype).is_floating_point:
        wanted = "integral" if whole else "floating point"
        raise RuntimeError(f"cov(): expected {name} to have {wanted} dtype but got {name} with {weights.dtype.title} dtype")
    if aval.size != count:
        raise RuntimeError(f"cov(): expected {name} to have the same numel as there are observations in the input but got {aval.size} != {count}")
    if (np.asarray(weights._concrete()) < 0).any():
        raise RuntimeError(f"cov(): {name} cannot be negative")


@public("torch", "torch.Tensor")
def corrcoef(input: Tensor) -> Tensor:
    """The correlation matrix of a matrix's rows. RuntimeError for more dimensions."""
    if input._aval.ndim > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input._aval.ndim} dimensions")
    c: Any = cov(input)
    if not c._aval.ndim:
        return c / c
    deviation = real(diagonal(c)).sqrt()
    return clamp_parts(c / view(deviation, (-1, 1)) / view(deviation, (1, -1)), -1, 1)


# ---------------------------------------------------------------------- areas


def _widths(y: Tensor, x: Tensor, dim: int) -> Tensor:
    """How far apart the places `x` are, shaped to multiply what lies along `dim` of `y`."""
    missing = y._aval.ndim - x._aval.ndim
    if x._aval.ndim == 1:
        return diff(view(x, [-1 if d == dim else 1 for d in range(y._aval.ndim)]), dim=dim)
    return diff(view(x, (1,) * missing + x._aval.shape) if missing > 0 else x, dim=dim)


def _check_area(name: str, y: Tensor, x: Tensor | None, dx: Any) -> None:
    for label, given in (("y", y), ("x", x)):
        if given is not None and given._aval.dtype == np.bool_:
            raise RuntimeError(f"{name}: received a bool input for `{label}`, but bool is not supported")
    if isinstance(dx, complex):
        raise RuntimeError(f"{name}: Currently, we only support dx as a real number.")


def _neighbours(y: Any, dim: int) -> Any:
    n = max(y._aval.shape[dim], 1)  # of nothing there are no neighbours
    return narrow(y, dim, min(1, y._aval.shape[dim]), n - 1) + narrow(y, dim, 0, n - 1)


@public("torch", "torch.trapz")
def trapezoid(y: Any, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The area under `y` along `dim` by the trapezoidal rule, at places `x` or `dx` apart."""
    _check_area("trapezoid", y, x, dx)
    dim = wrap_dim(dim, y._aval.ndim)
    if not y._aval.shape[dim]:
        return sum_(y, dim)
    if x is not None:
        return with_number("div", sum_(_neighbours(y, dim) * _widths(y, x, dim), dim), 2)
    ends = with_number("mul", select(y, dim, 0) + select(y, dim, -1), 0.5)
    return with_number("mul", sum_(y, dim) - ends, 1 if dx is None else dx)


@public("torch")
def cumulative_trapezoid(y: Any, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The areas under `y` up to each place along `dim` by the trapezoidal rule."""
    _check_area("cumulative_trapezoid", y, x, dx)
    dim = wrap_dim(dim, y._aval.ndim)
    both = _neighbours(y, dim)
    if x is not None:
        return with_number("div", (both * _widths(y, x, dim)).cumsum(dim), 2)
    return with_number("mul", both, (1 if dx is None else dx) / 2).cumsum(dim)
