"""Reductions to sums: sums, means, products, variances, logical reductions."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_standardized
from torchgrad_jax.declaration import numpy_forms as forms
from torchgrad_jax.declaration.converting import broadcast_to, convert, is_half, where, wide, zeros_like
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.runtime.baseline.broadcasting import FILLED
from torchgrad_jax.runtime.baseline.carrying import Spread
from torchgrad_jax.runtime.baseline.reducing import summing

_INT64 = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)


def wrap_dims(dim: tuple[int, ...] | int | None, ndim: int) -> tuple[int, ...]:
    """The reduced dimensions counted from the front; all of them for None or (). IndexError, RuntimeError as PyTorch."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    if ndim > 64:
        raise RuntimeError("only tensors with up to 64 dims are supported")
    size = max(ndim, 1)
    found = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if not -size <= d < size:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {d})")
        d %= size
        if d in found:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        found.append(d)
    return tuple(found) if ndim else ()


def wrap_one(dim: int, ndim: int) -> int:
    """One dimension counted from the front; 0 for a 0-dim tensor. IndexError where it is out of range."""
    found = wrap_dims((dim,), ndim)
    return found[0] if found else 0


def keep(x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """Put the reduced dimensions back with size 1."""
    return lax.expand_dims(x, sorted(dims)) if keepdim and dims else x


def spread(grad: Any, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Any:
    """A reduced result's gradient, expanded over the shape that was reduced."""
    return broadcast_to(unreduced(grad, shape, dim, keepdim), shape)


def unreduced(x: Any, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Any:
    """A reduced result with its reduced dimensions as size 1."""
    return x if keepdim else lax.expand_dims(x, sorted(wrap_dims(dim, len(shape))))


def count_of(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """How many elements are reduced into one."""
    return math.prod([shape[d] for d in dims])


def title(x: Any) -> str:
    """PyTorch's name for an array's type in messages, such as "Float"."""
    return dtypes.of(np.dtype(x.dtype)).title


# ---------------------------------------------------------------------- sums and means


def _sum(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The sum over `dim` (int or tuple; all where None). Integers and booleans are added as int64."""
    x = convert(x, dtype or (_INT64 if dtypes.category(x.dtype) <= dtypes.INT else np.dtype(x.dtype)))
    dims = wrap_dims(dim, x.ndim)
    if x.dtype == np.bool_:  # asked for
        return keep(lax.reduce_or(x, dims), dims, keepdim)
    return keep(lax.reduce_sum(wide(x), dims).astype(x.dtype), dims, keepdim)


def _mean(x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """The mean over `dim` (int or tuple; all where None)."""
    target = dtype or np.dtype(x.dtype)
    if not dtypes.is_float(target):
        what = "Input" if dtype is None else "Optional"
        raise RuntimeError(
            f"mean(): could not infer output dtype. {what} dtype must be either a floating point or complex dtype. Got: {dtypes.of(target).title}"
        )
    x = convert(x, target)
    dims = wrap_dims(dim, x.ndim)
    total = lax.reduce_sum(wide(x), dims)
    return keep((total / jnp.asarray(count_of(x.shape, dims), total.dtype)).astype(x.dtype), dims, keepdim)


def _mean_of_array(x: np.ndarray, dim: Any, keepdim: bool, dtype: Any) -> np.ndarray:
    dims = wrap_dims(dim, x.ndim)
    found = np.asarray(np.divide(summing(dims, x.dtype)(x), x.dtype.type(count_of(x.shape, dims))))
    return found[tuple([None if d in dims else slice(None) for d in range(x.ndim)])] if keepdim and dims else found


@lru_cache(1024)
def _keeping(dims: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """What sums arrays of a shape over these dimensions, which are left with size 1."""
    total, kept = summing(dims, dtype), tuple([1 if d in dims else n for d, n in enumerate(shape)])
    return lambda x: np.asarray(total(x)).reshape(kept)


def _mean_steps(x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    """The division is a step of its own, so that it goes with what is element-wise behind it."""
    dims = wrap_dims(dim, x.ndim)
    total = _keeping(dims, x.shape, x.dtype) if keepdim else summing(dims, x.dtype)
    return [(total, (0,)), (np.true_divide, (-1, np.array(count_of(x.shape, dims), x.dtype)))]


def _mean_result(x: np.ndarray, dim: Any, keepdim: bool, dtype: Any) -> np.ndarray | None:
    if x.dtype.char not in "fd" or dtype not in (None, x.dtype) or x.size < 2:
        return None
    dims = wrap_dims(dim, x.ndim)
    if count_of(x.shape, dims) < 2:
        return None
    return forms.stand_in(tuple([1 if d in dims else n for d, n in enumerate(x.shape) if keepdim or d not in dims]), x.dtype)


@lru_cache(1024)
def _spreading(shape: tuple[int, ...], dim: Any, keepdim: bool) -> tuple[int, Any]:
    """How many elements of `shape` were reduced to one, and the index that gives a result its dimensions again, None where it needs none."""
    dims = wrap_dims(dim, len(shape))
    if keepdim or len(dims) == len(shape):  # one number needs no dimensions
        return count_of(shape, dims), None
    return count_of(shape, dims), tuple([None if d in dims else slice(None) for d in range(len(shape))])


def _spread_form(divided: bool) -> forms.Forms:
    """The gradient of a sum, or of a mean: the same for all that were added."""

    def spread_evenly(grad: Any, aval: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
        count, index = _spreading(aval.shape, dim, keepdim)
        if divided:
            share = grad.astype(np.float32) if is_half(grad.dtype) else grad
            grad = np.asarray((share / share.dtype.type(count)).astype(grad.dtype))
        return forms.expand(forms.converted(grad if index is None else grad[index], aval.dtype), aval.shape)

    def steps(grad: Any, aval: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
        if grad.dtype != aval.dtype or is_half(grad.dtype):
            return None
        count, index = _spreading(aval.shape, dim, keepdim)
        fresh = count > 1 and math.prod(aval.shape) <= FILLED
        return [(Spread(grad.dtype.type(count) if divided else None, index, aval.shape, grad.dtype, fresh), (0,))]

    return forms.Forms(spread_evenly, lambda grad, aval, **_: forms.stand_in(aval.shape, aval.dtype), steps=steps)


for _name, _function in (("sum", _sum), ("mean", _mean)):
    _options: dict[str, Any] = {"linear": True, "numpy_vjp": _spread_form(_name == "mean")}
    if _name == "mean":  # it knows how many elements there are, so that no size is like another
        _options["numpy"] = forms.Forms(_mean_of_array, _mean_result, True, steps=_mean_steps)
    _sizes = "self_sym_sizes self_sym_numel" if _name == "mean" else "self_sym_sizes"
    op(f"{_name}(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)", attributes=_sizes, **_options)(_function)
    op(f"{_name}_dim(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)", method=False, toplevel=False,
       node=f"{_name.title()}Backward1", attributes=f"dim keepdim {_sizes}", **_options)(_function)  # fmt: skip


@op("nansum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)", keeps=("self",),
    grads={"self": lambda grad, self, dim, keepdim:
           where(jnp.isnan(self), 0, spread(grad, self.shape, dim, keepdim)).astype(grad.dtype)})  # fmt: skip
def nansum(x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    """The sum over `dim` of what is not nan. RuntimeError for complex numbers."""
    if x.dtype.kind == "c":
        raise RuntimeError("nansum does not support complex inputs")
    return _sum(where(jnp.isnan(x), zeros_like(x), x) if dtypes.is_float(x.dtype) else x, dim, keepdim, dtype)


@op("count_nonzero(Tensor self, int[]? dim=None)", differentiable=False, out=False)
def count_nonzero(x: Any, dim: Any) -> Any:
    """How many elements over `dim` are not zero."""
    return lax.reduce_sum(convert(x != 0, _INT64), wrap_dims(dim, x.ndim))


# ---------------------------------------------------------------------- logical reductions


def _logical(name: str, function: Any, doc: str) -> None:
    def reduce(x: Any, dim: Any, keepdim: bool) -> Any:
        dims = wrap_dims(dim, x.ndim)
        found = keep(function(convert(x, _BOOL), dims), dims, keepdim)
        return convert(found, np.dtype(x.dtype)) if x.dtype == np.uint8 else found

    reduce.__doc__ = doc
    op(f"{name}(Tensor self, int[]? dim=None, bool keepdim=False)", differentiable=False)(reduce)


_logical("all", lax.reduce_and, "Whether all elements over `dim` are non-zero.")
_logical("any", lax.reduce_or, "Whether any element over `dim` is non-zero.")


# ---------------------------------------------------------------------- variances


def _check_float(name: str, x: Any) -> None:
    if not dtypes.is_float(np.dtype(x.dtype)):
        raise RuntimeError(f"{name} only support floating point and complex dtypes")


def _center(x: Any, dims: tuple[int, ...]) -> Any:
    """The mean, with its dimensions kept."""
    x = wide(x)
    return keep(lax.reduce_sum(x, dims) / jnp.asarray(count_of(x.shape, dims), x.dtype), dims, True)


def _free(shape: tuple[int, ...], dims: tuple[int, ...], correction: float | None) -> float:
    """The degrees of freedom. correction: 1 where None."""
    return count_of(shape, dims) - (1 if correction is None else correction)


def _variance(x: Any, center: Any, dims: tuple[int, ...], correction: float | None) -> Any:
    off = wide(x) - center
    squares = off.real * off.real + off.imag * off.imag if off.dtype.kind == "c" else off * off
    return lax.reduce_sum(squares, dims) / jnp.asarray(max(_free(x.shape, dims, correction), 0.0), squares.dtype)


def _real_type(x: Any) -> Any:
    return dtypes.to_real(np.dtype(x.dtype))


def _var_grad(grad: Any, self: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    dims = wrap_dims(dim, self.ndim)
    g = unreduced(grad, self.shape, dim, keepdim)
    off = self - _center(self, dims).astype(self.dtype)
    free = _free(self.shape, dims, correction)
    return jnp.asarray(2.0 / free if free else np.inf, g.dtype) * g * off


def _std_grad(grad: Any, self: Any, result: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    flat = result == 0
    return _var_grad(where(flat, 0, grad / where(flat, 1, 2 * result)).astype(grad.dtype), self, dim, correction, keepdim)


def _mean_grad(grad: Any, self: Any, dim: Any, keepdim: bool) -> Any:
    count = count_of(self.shape, wrap_dims(dim, self.ndim))
    return spread(grad, self.shape, dim, keepdim) / jnp.asarray(count, grad.dtype)


_SPREAD = "(Tensor self, int[]? dim, number? correction, bool keepdim)"


@op("var" + _SPREAD, method=False, toplevel=False, validate=lambda x, **_: _check_float("std and var", x), grads={"self": _var_grad},
    numpy=numpy_standardized.variance, numpy_vjp=numpy_standardized.variance_vjp)  # fmt: skip
def var(x: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    """The mean square distance from the mean over `dim`, divided by the count less `correction`."""
    dims = wrap_dims(dim, x.ndim)
    return keep(_variance(x, _center(x, dims), dims, correction).astype(_real_type(x)), dims, keepdim)


@op("std" + _SPREAD, method=False, toplevel=False, validate=lambda x, **_: _check_float("std and var", x), grads={"self": _std_grad},
    numpy=numpy_standardized.deviation, numpy_vjp=numpy_standardized.deviation_vjp)  # fmt: skip
def std(x: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    """The root of the variance over `dim`. Its gradient where nothing varies is 0."""
    dims = wrap_dims(dim, x.ndim)
    return keep(lax.sqrt(_variance(x, _center(x, dims), dims, correction)).astype(_real_type(x)), dims, keepdim)


@op(
    "var_mean" + _SPREAD, method=False, toplevel=False, results=("result0", "result1"), validate=lambda x, **_: _check_float("var_mean", x),
    grads={"self": lambda grad0, grad1, self, dim, correction, keepdim: _var_grad(grad0, self, dim, correction, keepdim)
           + _mean_grad(grad1, self, dim, keepdim)},
)  # fmt: skip
def var_mean(x: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    """The variance and the mean."""
    dims = wrap_dims(dim, x.ndim)
    center = _center(x, dims)
    mean = center if keepdim else lax.squeeze(center, dims)
    return keep(_variance(x, center, dims, correction).astype(_real_type(x)), dims, keepdim), mean.astype(x.dtype)


@op(
    "std_mean" + _SPREAD, method=False, toplevel=False, results=("result0", "result1"), validate=lambda x, **_: _check_float("std_mean", x),
    grads={"self": lambda grad0, grad1, self, result0, dim, correction, keepdim: _std_grad(grad0, self, result0, dim, correction, keepdim)
           + _mean_grad(grad1, self, dim, keepdim)},
)  # fmt: skip
def std_mean(x: Any, dim: Any, correction: float | None, keepdim: bool) -> Any:
    """The standard deviation and the mean."""
    variance, mean = var_mean.function(x, dim, correction, keepdim)
    return lax.sqrt(variance), mean


# ---------------------------------------------------------------------- logarithms of sums


def _as_float(x: Any) -> Any:
    return convert(x, dtypes.default_float()) if not dtypes.is_float(np.dtype(x.dtype)) else x


@op("logsumexp(Tensor self, int[] dim, bool keepdim=False)",
    grads={"self": lambda grad, self, result, dim, keepdim: unreduced(grad, self.shape, dim, keepdim)
           * lax.exp(self - unreduced(result, self.shape, dim, keepdim)).conj()})  # fmt: skip
def logsumexp(x: Any, dim: Any, keepdim: bool) -> Any:
    """log(sum(exp(self))) over `dim`, without overflow."""
    x = _as_float(x)
    dims = wrap_dims(dim, x.ndim)
    if not x.size:
        return keep(lax.log(lax.reduce_sum(lax.exp(x), dims)), dims, keepdim)
    top = keep(lax.reduce_max(x.real, dims), dims, True)
    top = lax.stop_gradient(where(jnp.abs(top) == jnp.inf, zeros_like(top), top))
    total = lax.reduce_sum(lax.exp(wide(x - top.astype(x.dtype))), dims)
    found = lax.log(total) + lax.squeeze(wide(top), dims)
    return keep(found.astype(x.dtype), dims, keepdim)
