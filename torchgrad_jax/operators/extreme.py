"""Extremes: largest and smallest elements, where they are, and limits on elements."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_placing, numpy_running
from torchgrad_jax.declaration.converting import broadcast_to, convert, is_half, where
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.operators.kernels import along
from torchgrad_jax.operators.pointwise import refuse_complex
from torchgrad_jax.operators.reduction import keep, title, unreduced, wrap_dims, wrap_one
from torchgrad_jax.runtime.value import Aval


def refuse_empty(name: str, x: Any, dim: Any, as_given: bool = False) -> None:
    """PyTorch's errors for the extreme of nothing. RuntimeError without a dimension, IndexError with one. as_given: which is told as it was given."""
    if 0 not in x.shape:
        return
    if dim is None or dim == ():
        raise RuntimeError(
            f"{name}: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
        )
    dims = (dim,) if isinstance(dim, int) else dim
    for d, given in zip(wrap_dims(dim, len(x.shape)), dims, strict=True):
        if x.shape[d] == 0:
            raise IndexError(f"{name}: Expected reduction dim {given if as_given else d} to have non-zero size.")


def _refuse_complex(name: str, x: Any) -> None:
    if x.dtype.kind == "c":
        raise NotImplementedError(f"\"{name}\" not implemented for '{title(x)}'")


def _reduce_max(x: Any, dims: tuple[int, ...]) -> Any:
    return lax.reduce_or(x, dims) if x.dtype == np.bool_ else lax.reduce_max(x, dims)


def _reduce_min(x: Any, dims: tuple[int, ...]) -> Any:
    return lax.reduce_and(x, dims) if x.dtype == np.bool_ else lax.reduce_min(x, dims)


_REDUCE = {"max": _reduce_max, "min": _reduce_min}


def shared_grad(grad: Any, self: Any, result: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The gradient of an extreme, in equal parts to all elements that have its value."""
    dims = wrap_dims(dim, self.ndim)
    mask = self == unreduced(result, self.shape, dim, keepdim)
    count = keep(lax.reduce_sum(mask.astype(grad.dtype), dims), dims, True)
    return unreduced(grad, self.shape, dim, keepdim) * mask.astype(grad.dtype) / count


def _shared_or_nan(grad: Any, self: Any, result: Any) -> Any:
    """As `shared_grad`; a nan result's gradient goes to the nans."""
    mask = (self == result) | (jnp.isnan(self) & jnp.isnan(result))
    return where(mask, grad / mask.sum().astype(grad.dtype), 0).astype(grad.dtype)


# ---------------------------------------------------------------------- values


def _declare_values(kind: str) -> None:
    word = "largest" if kind == "max" else "smallest"

    def over_dims(x: Any, dim: Any, keepdim: bool) -> Any:
        dims = wrap_dims(dim, x.ndim)
        return keep(_REDUCE[kind](x, dims), dims, keepdim)

    def over_all(x: Any) -> Any:
        return _REDUCE[kind](x, tuple(range(x.ndim)))

    def validate_dims(x: Any, dim: Any, keepdim: bool) -> None:
        refuse_empty(f"a{kind}()", x, dim, as_given=True)
        _refuse_complex(f"{kind}_values_cpu", x)

    def validate_all(x: Any) -> None:
        if 0 in x.shape:
            raise RuntimeError(f"{kind}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
                               "'dim' argument.")  # fmt: skip
        _refuse_complex(f"{kind}_all", x)

    over_dims.__doc__ = f"The {word} element over `dim` (int or tuple; all where None); nan where there is one. Ties share the gradient."
    over_all.__doc__ = f"The {word} of all elements; nan where there is one. Ties share the gradient."
    op(f"a{kind}(Tensor self, int[]? dim=None, bool keepdim=False)", validate=validate_dims, keeps=("self", "result"),
       grads={"self": shared_grad})(over_dims)  # fmt: skip
    op(f"{kind}_all(Tensor self)", method=False, toplevel=False, node=f"{kind.title()}Backward1", validate=validate_all,
       keeps=("self", "result"), grads={"self": _shared_or_nan})(over_all)  # fmt: skip


_declare_values("max")
_declare_values("min")


def _refuse_empty_aminmax(x: Any, dim: Any, keepdim: bool) -> None:
    if dim is None and 0 in x.shape:
        raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
    if dim is not None:
        refuse_empty("aminmax", x, dim)
    _refuse_complex("aminmax_cpu", x)


def _aminmax_grad(grad0: Any, grad1: Any, self: Any, min: Any, max: Any, dim: Any, keepdim: bool) -> Any:
    return shared_grad(grad0, self, min, dim, keepdim) + shared_grad(grad1, self, max, dim, keepdim)


@op("aminmax(Tensor self, *, int? dim=None, bool keepdim=False)", results=("min", "max"), validate=_refuse_empty_aminmax,
    keeps=("self", "min", "max"),
    grads={"self": _aminmax_grad})  # fmt: skip
def aminmax(x: Any, dim: Any, keepdim: bool) -> Any:
    """The smallest and the largest element over `dim` (all where None)."""
    dims = wrap_dims(dim, x.ndim)
    low, high = keep(_reduce_min(x, dims), dims, keepdim), keep(_reduce_max(x, dims), dims, keepdim)
    return low, high


# ---------------------------------------------------------------------- places


_SHORT = 32


def first_place(kind: str, x: Any, best: Any, dim: int) -> Any:
    """Where along `dim` the first element equal to `best` (nan where that is nan) stands; `best` has `dim` kept. int64.

    Two plain reductions: XLA's reduction of pairs is several times slower on CPU, except along short dimensions.
    """
    if x.shape[dim] <= _SHORT and x.dtype != np.bool_:
        return (lax.argmax if kind == "max" else lax.argmin)(x, dim, np.int64)
    hit = x == best
    if dtypes.is_float(np.dtype(x.dtype)):
        hit = hit | (x != x)
    n = x.shape[dim]
    place = lax.broadcasted_iota(np.int32 if n < 2**31 else np.int64, x.shape, dim)
    return lax.reduce_min(where(hit, place, n), (dim,)).astype(np.int64)


def _first(kind: str) -> Callable[[Any, int], list[Any]]:
    """The extreme along a dimension and its first place, `dim` kept. The element is that at the place: of 0 and -0 the first."""

    def said(x: Any, *, dim: int) -> list[Any]:
        best = keep(_REDUCE[kind](x, (dim,)), (dim,), True)
        place = lax.expand_dims(first_place(kind, x, best, dim), (dim,))
        if x.dtype != np.bool_ and dtypes.is_float(np.dtype(x.dtype)):
            here = lax.broadcasted_iota(place.dtype, x.shape, dim) == place
            best = keep(_REDUCE[kind](where(here, x, np.array(-np.inf if kind == "max" else np.inf, x.dtype)), (dim,)), (dim,), True)
        return [best, place]

    by_loop = along.firsts(f"first_{kind}", said)
    return lambda x, dim: by_loop(x, dim) if along.fits(x) else said(x, dim=dim)


def at_place(grad: Any, shape: tuple[int, ...], indices: Any, dim: int, keepdim: bool) -> Any:
    """Zeros, and the gradient at the one place along `dim` that `indices` names."""
    if not shape:
        return grad
    dim = wrap_one(dim, len(shape))
    grad, indices = [a if keepdim else lax.expand_dims(a, (dim,)) for a in (grad, indices)]
    return along.put(grad, indices, dim, along.LAST, length=shape[dim])


def _declare_places(kind: str) -> None:
    first = _first(kind)

    def extreme(x: Any, dim: int, keepdim: bool) -> Any:
        if not x.ndim:
            return x, jnp.zeros((), np.int64)
        dim = wrap_one(dim, x.ndim)
        best, place = first(x, dim)
        return (best, place) if keepdim else (lax.squeeze(best, (dim,)), lax.squeeze(place, (dim,)))

    def place_of(x: Any, dim: Any, keepdim: bool) -> Any:
        shape = x.shape
        flat = x.reshape(-1) if dim is None else x
        found = extreme(flat, 0 if dim is None else dim, keepdim and dim is not None)[1]
        return found.reshape((1,) * len(shape)) if dim is None and keepdim else found

    def validate_dim(x: Any, dim: int, keepdim: bool) -> None:
        refuse_empty(f"{kind}()", x, wrap_one(dim, x.ndim))
        if x.dtype.kind == "c":
            raise RuntimeError(f"{kind}(): does not support complex input")

    def validate_place(x: Any, dim: Any, keepdim: bool) -> None:
        if 0 in x.shape and dim is None:
            raise IndexError(f"arg{kind}(): Expected reduction dim to be specified for input.numel() == 0.")
        if x.dtype.kind in "cb":
            raise RuntimeError(f"arg{kind}(): does not support {'complex' if x.dtype.kind == 'c' else 'bool'} input")
        refuse_empty(f"arg{kind}()", x, dim if dim is None else wrap_one(dim, x.ndim))

    extreme.__doc__ = f"The {kind} over one dimension and the first place where it is."
    place_of.__doc__ = f"The first place of the {kind} over `dim`, counted in the flattened tensor where None."
    op(f"{kind}_dim(Tensor self, int dim, bool keepdim=False)", method=False, toplevel=False, node=f"{kind.title()}Backward0",
       results=("values", "indices"), validate=validate_dim,
       grads={"self": lambda grad, self_sym_sizes, indices, dim, keepdim:
              at_place(grad, self_sym_sizes, indices, dim, keepdim)},
       numpy=getattr(numpy_running, f"{kind}_dim"), numpy_grads=numpy_placing.put_back)(extreme)  # fmt: skip
    op(f"arg{kind}(Tensor self, int? dim=None, bool keepdim=False)", differentiable=False, validate=validate_place,
       numpy=numpy_running.argmax if kind == "max" else numpy_running.argmin)(place_of)  # fmt: skip


_declare_places("max")
_declare_places("min")


# ---------------------------------------------------------------------- limits


def _limited(x: Any, low: Any, high: Any) -> Any:
    """`x` between the limits that are there, in the dtype that holds all of them."""
    given = [a for a in (low, high) if a is not None]
    target = np.dtype(x.dtype)
    for a in given:
        if dtypes.category(np.dtype(a.dtype)) > dtypes.category(target):
            target = np.dtype(a.dtype)
    x = convert(x, target)
    if low is not None:
        x = lax.max(x, broadcast_to(convert(low, target), x.shape))
    return x if high is None else lax.min(x, broadcast_to(convert(high, target), x.shape))


def _limit(limit: Any, x: Any) -> Any:
    """A limit with no more digits than half precision has."""
    return convert(jnp.asarray(limit), x.dtype) if is_half(np.dtype(x.dtype)) else limit


def _within_grad(grad: Any, self: Any, min: Any, max: Any) -> Any:
    inside = jnp.ones(self.shape, bool)
    if min is not None:
        inside = inside & (self >= _limit(min, self))
    if max is not None:
        inside = inside & (self <= _limit(max, self))
    return where(inside, grad, 0).astype(grad.dtype)


def _refuse_no_limit(x: Any, low: Any, high: Any) -> None:
    if low is None and high is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    _refuse_complex_limit(x, low, high)
    limits = {"min": low, "max": high}
    given = [kind for kind, limit in limits.items() if limit is not None]
    numbers = isinstance(limits[given[0]], type)
    if numbers or len(given) == 2:
        _refuse_bools("_".join(["clamp", *given * (len(given) == 1), *["scalar"] * numbers, "cpu"]), x, low, high)


def _refuse_complex_limit(*given: Any) -> None:
    if any(a is complex or (isinstance(a, Aval) and a.dtype.kind == "c") for a in given):
        raise NotImplementedError("clamp is not supported for complex types")


def _refuse_bools(kernel: str, *given: Any) -> None:
    """Refuses what would be limited among bool alone. A limit that is a tensor, and the only one, is no limit to PyTorch but a maximum."""
    if all(a is None or a is bool or (isinstance(a, Aval) and a.dtype == np.bool_) for a in given):
        raise NotImplementedError(f"\"{kernel}\" not implemented for 'Bool'")


@op("clamp_number(Tensor self, Scalar? min=None, Scalar? max=None)", elementwise=True, method=False, toplevel=False, node="ClampBackward1",
    validate=_refuse_no_limit, keeps=("self",), grads={"self": _within_grad}, names_c_types=True)  # fmt: skip
def clamp_number(x: Any, low: Any, high: Any) -> Any:
    """Elements outside of [min, max] moved to its ends, which are numbers."""
    return _limited(x, low, high)


def _grad_of_low(grad: Any, self: Any, min: Any, max: Any) -> Any:
    used = self < min if max is None else (self < min) & (min < max)
    return where(used, grad, 0).astype(grad.dtype)


def _grad_of_high(grad: Any, self: Any, min: Any, max: Any) -> Any:
    used = self > max if min is None else (self > max) | (max < min)
    return where(used, grad, 0).astype(grad.dtype)


@op("clamp_tensor(Tensor self, Tensor? min=None, Tensor? max=None)", promote="common", method=False, toplevel=False, node="ClampBackward0",
    validate=_refuse_no_limit, keeps=("self", "min", "max"), grads={"self": _within_grad, "min": _grad_of_low, "max": _grad_of_high})  # fmt: skip
def clamp_tensor(x: Any, low: Any, high: Any) -> Any:
    """Elements outside of [min, max] moved to its ends, which are tensors."""
    return _limited(x, low, high)


def _declare_one_sided(kind: str, limit: Any) -> None:
    below = kind == "min"

    def by_number(x: Any, bound: Any) -> Any:
        return _limited(x, bound, None) if below else _limited(x, None, bound)

    by_number.__doc__ = f"clamp with {kind} alone."
    if below:
        own = {"self": lambda grad, self, min: where(self >= _limit(min, self), grad, 0).astype(grad.dtype)}
        other = {"min": lambda grad, self, min: where(self < min, grad, 0).astype(grad.dtype)}
    else:
        own = {"self": lambda grad, self, max: where(self <= _limit(max, self), grad, 0).astype(grad.dtype)}
        other = {"max": lambda grad, self, max: where(self > max, grad, 0).astype(grad.dtype)}

    def refuse(x: Any, bound: Any) -> None:
        _refuse_complex_limit(x, bound)
        _refuse_bools(f"clamp_{kind}_scalar_cpu", x, bound)

    op(f"clamp_{kind}_number(Tensor self, Scalar {kind})", elementwise=True, method=False, toplevel=False, validate=refuse,
       node=f"Clamp{kind.title()}Backward0", keeps=("self",), grads=own, names_c_types=True)(by_number)  # fmt: skip
    op(f"clamp_{kind}_tensor(Tensor self, Tensor {kind})", promote="common", method=False, toplevel=False, validate=_refuse_complex_limit,
       node=f"Clamp{kind.title()}Backward1", keeps=("self", kind), grads={**own, **other})(limit)  # fmt: skip


_declare_one_sided("min", lax.max)
_declare_one_sided("max", lax.min)


def _declare_ignoring_nan(name: str, kind: str, wins: Any) -> None:
    def choose(x: Any, y: Any) -> Any:
        if not dtypes.is_float(np.dtype(x.dtype)):
            return lax.max(x, y) if kind == "max" else lax.min(x, y)
        return where(jnp.isnan(x), y, where(jnp.isnan(y), x, lax.max(x, y) if kind == "max" else lax.min(x, y)))

    choose.__doc__ = f"The {kind} of both, element by element; the other one where one is nan."
    op(f"{name}(Tensor self, Tensor other)", promote="common", validate=refuse_complex(name), keeps=("self", "other"),
       grads={"self": lambda grad, self, other: where(wins(self, other) | jnp.isnan(other), grad, 0).astype(grad.dtype),
              "other": lambda grad, self, other: where(wins(self, other) | jnp.isnan(other), 0, grad).astype(grad.dtype)})(choose)  # fmt: skip


_declare_ignoring_nan("fmax", "max", operator.ge)
_declare_ignoring_nan("fmin", "min", operator.le)
