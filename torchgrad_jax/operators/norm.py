"""Norms and distances. Gradients at zero are 0, as PyTorch's."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.converting import convert, where, wide, zeros_like
from torchgrad_jax.declaration.numpy_placing import gradients
from torchgrad_jax.declaration.numpy_products import multiplying
from torchgrad_jax.declaration.operands import MATRICES_UNLIKE
from torchgrad_jax.declaration.operator import SAME, Together, op
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.operators.matrix import batched_dot
from torchgrad_jax.operators.pointwise import direction_of
from torchgrad_jax.operators.reduction import keep, title, unreduced, wrap_dims
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.indexing import add_rows
from torchgrad_jax.runtime.baseline.reducing import summing
from torchgrad_jax.runtime.operation import stand_in


def norm_over(x: Any, order: float, dims: tuple[int, ...]) -> Any:
    """The `order`-norm over `dims`."""
    if order == 2:
        squares = x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x
        return lax.sqrt(lax.reduce_sum(squares, dims))
    # JAX's derivative of the absolute value of 0 is 1.
    size = jnp.abs(x) if x.dtype.kind == "c" else x * lax.stop_gradient(lax.sign(x))
    if order == 1:
        return lax.reduce_sum(size, dims)
    if order == 0:
        return lax.reduce_sum((size != 0).astype(size.dtype), dims)
    if order == math.inf:
        return lax.reduce_max(size, dims)
    if order == -math.inf:
        return lax.reduce_min(size, dims)
    return lax.pow(lax.reduce_sum(_pow(size, order), dims), jnp.asarray(1 / order, size.dtype))


def _pow(x: Any, order: float) -> Any:
    return lax.integer_pow(x, int(order)) if order.is_integer() and abs(order) <= 8 else lax.pow(x, jnp.asarray(order, x.dtype))


def norm_grad(grad: Any, x: Any, norm: Any, order: float, dims: tuple[int, ...]) -> Any:
    """The gradient of the `order`-norm: `grad` and `norm` have the reduced dimensions as size 1. Ties of an extreme share it."""
    flat = norm == 0
    if order == 0:
        return zeros_like(x)
    if order == 1:
        return direction_of(x) * grad
    if order == 2:
        return where(flat, 0, x / where(flat, 1, norm)).astype(x.dtype) * grad
    size = jnp.abs(x)
    if math.isinf(order):
        best = (size == norm) | (jnp.isnan(size) & jnp.isnan(norm))
        count = keep(lax.reduce_sum(best.astype(grad.dtype), dims), dims, True)
        return direction_of(x) * (best * (grad / count)).astype(grad.dtype)
    if order < 1:
        zero = size == 0
        powers = where(zero, 0, _pow(where(zero, 1, size), order - 1)).astype(size.dtype)
        return direction_of(x) * powers * grad * _pow(norm, 1 - order)
    scale = where(flat, 0, grad / _pow(where(flat, 1, norm), order - 1)).astype(grad.dtype)
    if order < 2:
        zero = size == 0
        return direction_of(x) * where(zero, 0, _pow(where(zero, 1, size), order - 1)).astype(size.dtype) * scale
    return x * where(size == 0, 0, _pow(where(size == 0, 1, size), order - 2)).astype(size.dtype) * scale


def check_wider(name: str, x: Any, dtype: np.dtype) -> None:
    """RuntimeError for a dtype of another kind than that of `x`, or a narrower one."""
    held, wanted = dtypes.of(np.dtype(x.dtype)), dtypes.of(dtype)
    if wanted.category < dtypes.FLOAT:
        raise RuntimeError(f"{name}: dtype should be floating point or complex, but got {wanted.title}")
    if held.is_complex != wanted.is_complex:
        kind = "complex" if held.is_complex else "real"
        raise RuntimeError(f"{name}: dtype should be {kind} for {kind} inputs, but got {wanted.title}")
    if promotion.promote_types(held.np, dtype) != dtype:
        raise RuntimeError(
            f"{name}: the dtype of the input ({held.title}) should be convertible without narrowing to the specified dtype ({wanted.title})"
        )


def _check_vector_norm(x: Any, ord: float, dim: Any, keepdim: bool, dtype: Any) -> None:
    if not dtypes.is_float(np.dtype(x.dtype)):
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {title(x)}")
    dims = wrap_dims(dim, len(x.shape))
    if dtype is not None:
        check_wider("linalg.vector_norm", x, dtype)
    if 0 in x.shape and (ord < 0 or math.isinf(ord)):
        if dim is None or dim == ():
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {_order_text(ord)} norm on an empty tensor because the operation does not have an identity"
            )
        for d in dims:
            if x.shape[d] == 0:
                raise RuntimeError(
                    f"linalg.vector_norm cannot compute the {_order_text(ord)} norm on the dimension {d} because this dimension is empty and the "
                    "operation does not have an identity"
                )


def _order_text(order: float) -> str:
    return f"{order:g}"


def _vector_norm_grad(grad: Any, self: Any, result: Any, ord: float, dim: Any, keepdim: bool) -> Any:
    dims = wrap_dims(dim, self.ndim)
    g, norm = unreduced(grad, self.shape, dim, keepdim), unreduced(result, self.shape, dim, keepdim)
    return norm_grad(g, self.astype(norm.dtype) if self.dtype.kind != "c" else self, norm, ord, dims)


@op("vector_norm(Tensor self, number ord=2, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)", method=False, toplevel=False,
    node="LinalgVectorNormBackward0", validate=_check_vector_norm, grads={"self": _vector_norm_grad},
    undefined=lambda ord, **_: ord == 0)  # fmt: skip
def vector_norm(x: Any, ord: float, dim: Any, keepdim: bool, dtype: Any) -> Any:
    """The `ord`-norm over `dim`, all elements taken as one vector where None."""
    x = convert(x, dtype) if dtype is not None else x
    dims = wrap_dims(dim, x.ndim)
    return keep(norm_over(wide(x), ord, dims).astype(dtypes.to_real(np.dtype(x.dtype))), dims, keepdim)


# ---------------------------------------------------------------------- slices shortened


def _others(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    dim = wrap_dims((dim,), len(shape))[0]
    return tuple(d for d in range(len(shape)) if d != dim)


_LEAST = 1e-7


def _shortening(norm: Any, maxnorm: float) -> Any:
    return where(norm > maxnorm, jnp.asarray(maxnorm, norm.dtype) / (norm + jnp.asarray(_LEAST, norm.dtype)), jnp.ones_like(norm))


def _renorm_grad(grad: Any, self: Any, p: float, dim: int, maxnorm: float) -> Any:
    dims = _others(self.shape, dim)
    norm = keep(norm_over(wide(self), p, dims), dims, True)
    along = (wide(self.conj()) * wide(grad)).real
    change = -lax.reduce_sum(along, dims).reshape(norm.shape) * maxnorm / (norm + _LEAST) ** 2
    long = norm > maxnorm
    passed = wide(grad) * _shortening(norm, maxnorm)
    return where(long, passed + norm_grad(where(long, change, 0), wide(self), norm, p, dims), passed).astype(grad.dtype)


def _check_renorm(x: Any, p: float, dim: int, maxnorm: float) -> None:
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if len(x.shape) < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {len(x.shape)} dimensions")
    wrap_dims((dim,), len(x.shape))
    if not dtypes.is_float(np.dtype(x.dtype)):
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {title(x)}")


def _array_norm(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    return np.expand_dims(np.sqrt(summing(dims, x.dtype)(x * x)), dims)


def _array_shortening(norm: np.ndarray, maxnorm: float) -> np.ndarray:
    number = norm.dtype.type
    return np.where(norm > number(maxnorm), number(maxnorm) / (norm + number(_LEAST)), number(1))


def _array_norm_grad(grad: np.ndarray, x: np.ndarray, norm: np.ndarray) -> np.ndarray:
    """`norm_grad` of the 2-norm."""
    flat, number = norm == 0, norm.dtype.type
    return np.where(flat, number(0), x / np.where(flat, number(1), norm)) * grad


def _shortened(x: np.ndarray, p: float, dim: int, maxnorm: float) -> np.ndarray:
    return x * _array_shortening(_array_norm(x, _others(x.shape, dim)), maxnorm)


def _shortened_back(grad: np.ndarray, aval: Any, x: np.ndarray, p: float, dim: int, maxnorm: float) -> np.ndarray:
    dims, number = _others(x.shape, dim), x.dtype.type
    norm = _array_norm(x, dims)
    change = -summing(dims, x.dtype)(x * grad).reshape(norm.shape) * number(maxnorm) / np.square(norm + number(_LEAST))
    long, passed = norm > number(maxnorm), grad * _array_shortening(norm, maxnorm)
    return np.where(long, passed + _array_norm_grad(np.where(long, change, number(0)), x, norm), passed)


def _is_for_arrays(p: float, *arrays: Any, of: tuple[int, ...] = (2,)) -> bool:
    """Whether forms are for these: of the 2-norm, which is by far the most frequent one, or of other norms that are named."""
    return p in of and arrays[0].dtype.char in "fd" and all([x.size > 0 and x.dtype == arrays[0].dtype for x in arrays])


# What an element of those that are summed takes, in nanoseconds.
_EACH = 2.0
_RENORM = Forms(_shortened, lambda x, p, **_: stand_in(x.shape, x.dtype) if _is_for_arrays(p, x) else None, True, each=_EACH, planned=True)
_RENORM_BACK = Forms(
    _shortened_back, lambda grad, aval, x, p, **_: stand_in(aval.shape, aval.dtype) if _is_for_arrays(p, grad, x) else None,
    True, each=_EACH, planned=True,
)  # fmt: skip


@op("renorm(Tensor self, number p, int dim, number maxnorm)", inplace=True, validate=_check_renorm, grads={"self": _renorm_grad},
    numpy=_RENORM, numpy_vjp=_RENORM_BACK)  # fmt: skip
def renorm(x: Any, p: float, dim: int, maxnorm: float) -> Any:
    """Each slice of `dim` whose `p`-norm is above `maxnorm`, shortened to it."""
    dims = _others(x.shape, dim)
    norm = keep(norm_over(wide(x), p, dims), dims, True)
    return (wide(x) * _shortening(norm, maxnorm)).astype(x.dtype)


# ---------------------------------------------------------------------- distances


def _dist_grad(grad: Any, self: Any, other: Any, result: Any, p: float) -> Any:
    return norm_grad(grad, self - other, result, p, tuple(range(max(self.ndim, other.ndim))))


@op("dist(Tensor self, Tensor other, number p=2)", promote="common", out=False,
    grads={"self": _dist_grad, "other": lambda grad, self, other, result, p: -_dist_grad(grad, self, other, result, p)})  # fmt: skip
def dist(x: Any, y: Any, p: float) -> Any:
    """The `p`-norm of self - other."""
    return norm_over(x - y, float(p), tuple(range(x.ndim)))


def _pairwise_norm_grad(grad: Any, self: Any, result: Any, p: float, keepdim: bool) -> Any:
    grad, result = (unreduced(x, self.shape, (-1,), keepdim) for x in (grad, result))
    return norm_grad(grad, self, result, p, wrap_dims((-1,), self.ndim))


@op("_pairwise_norm(Tensor self, float p, bool keepdim)", method=False, toplevel=False, node="NormBackward1", grads={"self": _pairwise_norm_grad},
    undefined=lambda p, **_: p == 0)  # fmt: skip
def pairwise_norm(x: Any, p: float, keepdim: bool) -> Any:
    """The `p`-norm of the last dimension."""
    dims = wrap_dims((-1,), x.ndim)
    return keep(norm_over(wide(x), p, dims).astype(dtypes.to_real(np.dtype(x.dtype))), dims, keepdim)


def _differences(x: Any, y: Any) -> Any:
    return lax.sub(*jnp.broadcast_arrays(x[..., :, None, :], y[..., None, :, :]))


def _cdist(x: Any, y: Any, p: float, product: bool) -> Any:
    if not x.shape[-1]:
        return jnp.zeros((*jnp.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-2]), x.dtype)
    if product:
        squares = (x * x).sum(-1)[..., :, None] + (y * y).sum(-1)[..., None, :] - 2 * _matmul(x, jnp.swapaxes(y, -1, -2))
        squares = jnp.maximum(squares, 0)
        none = squares == 0
        return where(none, 0, lax.sqrt(where(none, 1, squares))).astype(x.dtype)
    return _distance(_differences(x, y), p)


def _distance(off: Any, p: float) -> Any:
    if p == 0:  # nan differs, but not by a number of elements
        return where(off != off, off, (off != 0).astype(off.dtype)).sum(-1)
    return norm_over(off, p, (off.ndim - 1,))


def _matmul(x: Any, y: Any) -> Any:
    batch = jnp.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    count = math.prod(batch)
    a = jnp.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(count, *x.shape[-2:])
    b = jnp.broadcast_to(y, (*batch, *y.shape[-2:])).reshape(count, *y.shape[-2:])
    return batched_dot(a, b).reshape(*batch, x.shape[-2], y.shape[-1])


def _euclidean_grads(grad: Any, x: Any, y: Any, result: Any) -> tuple[Any, Any]:
    """The gradients of `_cdist` by a matrix product."""
    flat = result == 0
    ratio = where(flat, 0, grad / where(flat, 1, result)).astype(grad.dtype)
    return x * ratio.sum(-1)[..., None] - _matmul(ratio, y), y * ratio.sum(-2)[..., None] - _matmul(jnp.swapaxes(ratio, -1, -2), x)


def _cdist_grads(grad: Any, x1: Any, x2: Any, result: Any, p: float, product: bool) -> dict[str, Any]:
    if product:
        return dict(zip(("x1", "x2"), _euclidean_grads(grad, x1, x2, result), strict=True))
    terms = _cdist_terms(grad, _differences(x1, x2), result, p)
    return {"x1": terms.sum(-2), "x2": -terms.sum(-3)}


def _cdist_terms(grad: Any, off: Any, result: Any, p: float) -> Any:
    """What each distance adds to the gradient of the element of the first row, of differences of two; to that of the second row the opposite."""
    if p == 1:
        return lax.sign(off) * grad[..., None]
    if math.isinf(p):
        there = where(jnp.abs(off) == result[..., None], grad[..., None], 0).astype(grad.dtype)
        return lax.sign(off) * there
    return norm_grad(grad[..., None], off, result[..., None], p, (off.ndim - 1,))


def _array_differences(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x[..., :, None, :] - y[..., None, :, :]


def _array_distances(x: np.ndarray, y: np.ndarray, p: float = 2.0, product: bool = False) -> np.ndarray:
    return _array_lengths(_array_differences(x, y), p)


def _array_lengths(off: np.ndarray, p: float) -> np.ndarray:
    """`_distance` of the 1-norm and of the 2-norm."""
    total = summing((off.ndim - 1,), off.dtype)
    return total(np.abs(off)) if p == 1 else np.sqrt(total(off * off))


def _array_terms(grad: np.ndarray, off: np.ndarray, result: np.ndarray, p: float) -> np.ndarray:
    """`_cdist_terms` of these."""
    return np.sign(off) * grad[..., None] if p == 1 else _array_norm_grad(grad[..., None], off, result[..., None])


def _array_matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    multiply = multiplying(False, False, x.dtype)
    return multiply(x.reshape(-1, *x.shape[-2:]), y.reshape(-1, *y.shape[-2:])).reshape(*x.shape[:-1], y.shape[-1])


def _array_distances_by_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    total, number = summing((x.ndim - 1,), x.dtype), x.dtype.type
    squares = total(x * x)[..., :, None] + total(y * y)[..., None, :] - number(2) * _array_matmul(x, y.swapaxes(-1, -2))
    squares = np.maximum(squares, number(0))
    none = squares == 0
    return np.where(none, number(0), np.sqrt(np.where(none, number(1), squares)))


def _distances_shape(x: np.ndarray, y: np.ndarray, p: float = 2.0, product: bool = False) -> np.ndarray | None:
    fits = _is_for_arrays(p, x, y, of=(1, 2)) and not product and x.shape[:-2] == y.shape[:-2] and x.shape[-1] == y.shape[-1]
    return stand_in((*x.shape[:-1], y.shape[-2]), x.dtype) if fits else None


def _array_cdist_grads(
    wanted: tuple[str, ...], grad: np.ndarray, avals: Any, x1: np.ndarray, x2: np.ndarray, result: np.ndarray, p: float, product: bool
) -> dict[str, np.ndarray]:
    terms = _array_terms(grad, _array_differences(x1, x2), result, p)
    made = {"x1": summing((terms.ndim - 2,), grad.dtype)(terms)} if "x1" in wanted else {}
    return made | ({"x2": -summing((terms.ndim - 3,), grad.dtype)(terms)} if "x2" in wanted else {})


def _array_euclidean_grads(
    wanted: tuple[str, ...], grad: np.ndarray, avals: Any, x1: np.ndarray, x2: np.ndarray, result: np.ndarray
) -> dict[str, np.ndarray]:
    flat, made, number = result == 0, {}, grad.dtype.type
    ratio = np.where(flat, number(0), grad / np.where(flat, number(1), result))
    if "x1" in wanted:
        made["x1"] = x1 * summing((ratio.ndim - 1,), ratio.dtype)(ratio)[..., None] - _array_matmul(ratio, x2)
    if "x2" in wanted:
        made["x2"] = x2 * summing((ratio.ndim - 2,), ratio.dtype)(ratio)[..., None] - _array_matmul(ratio.swapaxes(-1, -2), x1)
    return made


def _have_distances(
    grad: np.ndarray, avals: Any, x1: np.ndarray, x2: np.ndarray, result: np.ndarray, p: float = 2.0, product: bool = False
) -> bool:  # fmt: skip
    return _is_for_arrays(p, grad, x1, x2, result, of=(1, 2)) and not product and x1.shape[:-2] == x2.shape[:-2]


def _of_pairs(grad: np.ndarray, x: np.ndarray, *rest: np.ndarray) -> float:
    return _EACH * grad.size * x.shape[-1]


def _pairs_of(x: np.ndarray, y: np.ndarray) -> float:
    return _EACH * x.size * y.shape[-2]


_CDIST = Forms(_array_distances, _distances_shape, True, takes=_pairs_of, planned=True)
_EUCLIDEAN = Forms(_array_distances_by_product, _distances_shape, True, takes=_pairs_of, planned=True)


@op(
    "_euclidean_dist(Tensor x1, Tensor x2)", method=False, toplevel=False, promote="same",
    grads={"x1": lambda grad, x1, x2, result: _euclidean_grads(grad, x1, x2, result)[0],
           "x2": lambda grad, x1, x2, result: _euclidean_grads(grad, x1, x2, result)[1]},
unlike=MATRICES_UNLIKE, numpy=_EUCLIDEAN, numpy_grads=gradients(_array_euclidean_grads, _have_distances, _of_pairs))  # fmt: skip
def euclidean_dist(x: Any, y: Any) -> Any:
    """The distances of every row of `x1` from every row of `x2`, by a matrix product."""
    return _cdist(x, y, 2.0, True)


def _cdist_dtypes(x: Any, y: Any, p: float, product: bool) -> None:
    if not product and x.size and y.size:
        refusing("cdist", "h")(x)


@op(
    "_cdist(Tensor x1, Tensor x2, float p, bool product)", method=False, toplevel=False, node="CdistBackward0", promote="same",
    validate=_cdist_dtypes,
    grads={name: Together(_cdist_grads, name) for name in ("x1", "x2")}, attributes="p",
    numpy=_CDIST, numpy_grads=gradients(_array_cdist_grads, _have_distances, _of_pairs),
)  # fmt: skip
def cdist(x: Any, y: Any, p: float, product: bool) -> Any:
    """The `p`-norm distance of every row of `x1` from every row of `x2`. Its gradient where two rows coincide is 0."""
    return _cdist(x, y, p, product)


def _check_pdist(x: Any, p: float) -> None:
    """RuntimeError for what is no list of rows."""
    if x.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {x.ndim}D")
    if x.dtype.kind in "biuc":
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    if x.shape[0] > 1 and x.shape[1]:  # PyTorch's kernel is not called for nothing
        refusing("pdist", "h")(x)


def _pdist_grad(grad: Any, self: Any, result: Any, p: float) -> Any:
    i, j = _two_rows(self.shape[0])
    terms = _cdist_terms(grad, self[i] - self[j], result, float(p))
    return zeros_like(self).at[i].add(terms, mode="promise_in_bounds").at[j].add(-terms, mode="promise_in_bounds")


@lru_cache(64)
def _two_rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Every two of so many rows."""
    return np.triu_indices(count, 1)


def _array_pairs(x: np.ndarray, p: float) -> np.ndarray:
    i, j = _two_rows(x.shape[0])
    return _array_lengths(x[i] - x[j], p)


def _array_pairs_back(grad: np.ndarray, aval: Any, x: np.ndarray, result: np.ndarray, p: float) -> np.ndarray:
    (i, j), made = _two_rows(x.shape[0]), np.zeros(x.shape, x.dtype)
    terms = _array_terms(grad, x[i] - x[j], result, p)
    add_rows(made, i, terms)
    add_rows(made, j, -terms)
    return made


def _pairs_shape(x: np.ndarray, p: float) -> np.ndarray | None:
    n = x.shape[0]
    return stand_in((n * (n - 1) // 2,), x.dtype) if x.ndim == 2 and n > 1 and _is_for_arrays(p, x, of=(1, 2)) else None


_PDIST = Forms(_array_pairs, _pairs_shape, True, takes=lambda x: _EACH * x.size * len(x) / 2, planned=True)
_PDIST_BACK = Forms(
    _array_pairs_back, lambda grad, aval, x, result, p: stand_in(aval.shape, aval.dtype) if _is_for_arrays(p, grad, x, result, of=(1, 2)) else None,
    True, takes=lambda grad, x, *_: 2 * _EACH * grad.size * x.shape[1], planned=True,
)  # fmt: skip


@op("pdist(Tensor self, float p=2)", method=False, out=False, validate=_check_pdist, grads={"self": _pdist_grad}, attributes="p",
    numpy=_PDIST, numpy_vjp=_PDIST_BACK)  # fmt: skip
def pdist(x: Any, p: float) -> Any:
    """The `p`-norm distances of every two rows."""
    i, j = _two_rows(x.shape[0])
    off = x[i] - x[j]
    same = (off == 0).all(-1, keepdims=True)
    found = _distance(where(same, 1, off).astype(x.dtype), float(p))
    return where(same[:, 0], 0, found).astype(x.dtype)


@op("_raised(Tensor self, float least)", method=False, toplevel=False, node="CloneBackward0", grads={"self": SAME})
def raised(x: Any, least: float) -> Any:
    """Each number, at least `least`; its gradient is that of a copy, as where PyTorch changes the copy outside of the graph."""
    return jnp.maximum(x, jnp.asarray(least, x.dtype))


# ---------------------------------------------------------------------- weight normalization


def _weight_norm_grad(grad0: Any, v: Any, g: Any, result1: Any, dim: int, grad1: Any) -> dict[str, Any]:
    """With w = v * g / |v| and s = sum(grad * v): the gradient of v is (grad - v * s / |v|^2) * g / |v|, that of g is s / |v|
    (Salimans and Kingma 2016). `grad1` is the gradient of |v|."""
    v, norm = wide(v), wide(result1)
    of_v, of_g = zeros_like(v), zeros_like(norm)
    if grad0 is not None:
        grad = wide(grad0)
        s = keep(lax.reduce_sum(grad * v, dims := _all_but(dim, v.ndim)), dims, True)
        of_v, of_g = (grad - v * (s / (norm * norm))) * (lax.reshape(wide(g), norm.shape) / norm), s / norm
    if grad1 is not None:
        of_v = of_v + v * (wide(grad1) / norm)
    return {"v": of_v, "g": lax.reshape(of_g, g.shape)}


def _all_but(dim: int, ndim: int) -> tuple[int, ...]:
    return tuple(d for d in range(ndim) if d != dim % ndim)


@op("_weight_norm_interface(Tensor v, Tensor g, int dim=0)", method=False, results=("result0", "result1"),
    grads={"v": Together(_weight_norm_grad, "v"), "g": Together(_weight_norm_grad, "g")})  # fmt: skip
def weight_norm_interface(v: Any, g: Any, dim: int) -> Any:
    """v with the norms g along dimension `dim`, the first or the last; and the norms that v has there."""
    norm = keep(norm_over(wide(v), 2, dims := _all_but(dim, v.ndim)), dims, True)
    return (wide(v) * (lax.reshape(wide(g), norm.shape) / norm)).astype(v.dtype), norm.astype(g.dtype)
