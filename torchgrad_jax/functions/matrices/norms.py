"""Norms, distances and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.replacing import static_op
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.declaration.operator import ARRAY, Static, plain_number
from torchgrad_jax.functions import views
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.matrices.decompositions import svdvals
from torchgrad_jax.functions.reductions import as_int_dims, sum_
from torchgrad_jax.functions.views import contiguous, expand, movedim, unsqueeze, view
from torchgrad_jax.operators import norm, registry
from torchgrad_jax.operators.kernels.linalg_errors import check_float, check_square
from torchgrad_jax.runtime.user_code import warn_once


@public("torch.linalg")
def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Tensor:
    """The `ord`-norm over `dim`, all elements taken as one vector where None."""
    if isinstance(ord, complex):
        raise RuntimeError("linalg.vector_norm: Expected a non-complex scalar as the order of norm.")
    made = apply(static_op("vector_norm", plain_number(ord), as_int_dims(dim), bool(keepdim), None if dtype is None else dtype.np), (x,))
    return with_out("linalg.vector_norm", out, made)


def _amax(kind: str, x: Tensor, dim: int, keepdim: bool) -> Tensor:
    return apply(static_op("a" + kind, (dim,), keepdim), (x,))


@public("torch.linalg")
def matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Tensor:
    """A norm of the matrices in two dimensions: "fro", "nuc", or the operator norms 1, -1, 2, -2, inf, -inf."""
    ndim = A._aval.ndim
    if ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    order = ord if isinstance(ord, str) else float(ord)
    if order not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {order if isinstance(order, str) else f'{order:g}'} not supported.")
    singular = order in ("nuc", 2, -2)
    check_float("linalg.matrix_norm", A._aval, low_precision=not singular)
    dims = as_int_dims(dim)
    if dims is None or len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dims or ()))}")
    rows, columns = (wrap_dim(d, ndim) for d in dims)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dims[0]}, {dims[1]})")
    if dtype is not None:
        norm.check_wider("linalg.matrix_norm", A._aval, dtype.np)
        A = cast(A, dtype)
    if isinstance(order, str):
        made = _singular(A, rows, columns, keepdim, lambda s, k: sum_(s, -1, k)) if singular else vector_norm(A, 2, (rows, columns), keepdim)
        return with_out("linalg.matrix_norm", out, made)
    kind = "max" if order > 0 else "min"
    if singular:
        return with_out("linalg.matrix_norm", out, _singular(A, rows, columns, keepdim, lambda s, k: _extreme_size(kind, s, -1, k)))
    first, second = (rows, columns) if order in (1, -1) else (columns, rows)
    second = second - 1 if not keepdim and second > first else second
    return with_out("linalg.matrix_norm", out, _extreme_size(kind, vector_norm(A, 1, first, keepdim), second, keepdim))


def _extreme_size(kind: str, sizes: Tensor, dim: int, keepdim: bool) -> Tensor:
    """The largest or the smallest of numbers that are not negative; the largest of none is 0."""
    if not sizes._aval.shape[dim]:
        if kind == "max":
            return sum_(sizes, dim, keepdim)
        raise IndexError(f"amin(): Expected reduction dim {dim} to have non-zero size.")
    return _amax(kind, sizes, dim, keepdim)


def _singular(A: Tensor, rows: int, columns: int, keepdim: bool, reduce: Callable[[Tensor, bool], Tensor]) -> Tensor:
    """A reduction of the singular values of the matrices in two dimensions."""
    made = reduce(svdvals(movedim(A, (rows, columns), (-2, -1))), keepdim)
    return movedim(unsqueeze(made, -1), (-2, -1), (rows, columns)) if keepdim else made


@public("torch.linalg.norm")
def linalg_norm(
    A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None
) -> Tensor:  # fmt: skip
    """A vector's or a matrix's norm, as `dim` and the number of dimensions say."""
    dims = as_int_dims(dim)
    ndim = A._aval.ndim
    if ord is not None:
        if dims is not None and len(dims) not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
        if dims is None and ndim not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {ndim}D.")
    if ord is not None and (len(dims) if dims is not None else ndim) == 2:
        return matrix_norm(A, ord, (0, 1) if dims is None else dims, keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):
        raise RuntimeError(f"linalg.norm: Order {ord} not supported.")
    return vector_norm(A, 2.0 if ord is None else ord, dims, keepdim, dtype=dtype, out=out)


@public("torch.norm", "torch.Tensor.norm")
def norm_(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Any = None, dtype: Any = None) -> Tensor:
    """The `p`-norm over `dim`, all elements taken as one vector where None; "nuc" is the nuclear norm of a matrix."""
    if p == "nuc":
        return matrix_norm(input, "nuc", tuple(range(input._aval.ndim)) if dim is None else dim, keepdim, dtype=dtype, out=out)
    return vector_norm(input, 2 if p == "fro" else 2.0 if p is None else p, dim, keepdim, dtype=dtype, out=out)


@public("torch")
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The `p`-norm distances of the rows of `x1` from those of `x2`, over batches that broadcast."""
    a, b = x1._aval, x2._aval
    for label, aval in (("X1", a), ("X2", b)):
        if aval.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {label} got: {aval.ndim}D")
    if a.shape[-1] != b.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {a.shape[-1]} X2: {b.shape[-1]}")
    for label, aval in (("X1", a), ("X2", b)):
        if not dtypes.of(aval.dtype).is_floating_point:
            raise RuntimeError(f"cdist only supports floating-point dtypes, {label} got: {dtypes.of(aval.dtype).title}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if compute_mode not in _COMPUTE_MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    mode = _COMPUTE_MODES[compute_mode]
    product = p == 2 and (mode == "always" or (mode == "large" and (a.shape[-2] > 25 or b.shape[-2] > 25)))
    if 0 in a.shape + b.shape:
        x2 = cast(x2, x1.dtype)
    elif product:
        batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        x1, x2 = (_one_batch(x, batch) if batch else x for x in (x1, x2))
        made = apply(registry["_euclidean_dist"].bind((ARRAY, ARRAY)), (x1, x2))
        return view(made, (*batch, a.shape[-2], b.shape[-2]))
    return apply(registry["_cdist"].bind((ARRAY, ARRAY, Static(float(p)), Static(product))), (x1, x2))


def _one_batch(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    wide = expand(x, (*batch, *x._aval.shape[-2:]))
    return view(contiguous(wide), (math.prod(batch), *x._aval.shape[-2:]))


_COMPUTE_MODES = {
    "use_mm_for_euclid_dist_if_necessary": "large", "use_mm_for_euclid_dist": "always", "donot_use_mm_for_euclid_dist": "never",
}  # fmt: skip


_ORDS = (1, -1, 2, -2, math.inf, -math.inf, "fro", "nuc")


@public("torch.linalg")
def cond(A: Tensor, p: Any = None, *, out: Any = None) -> Tensor:
    """The ratio of the largest and the smallest singular value, or the product of the norms of a matrix and its inverse."""
    p = 2 if p is None else p
    if isinstance(p, str):
        check_square(f"linalg.cond(ord={p})", A._aval)
    elif A._aval.ndim < 2:
        raise RuntimeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    if p not in _ORDS:
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if not A._aval.size:
        made = A.new_zeros(A._aval.shape[:-2], dtype=A.dtype.to_real())
    elif p in (2, -2):
        s = svdvals(A)
        first, last = views.narrow(s, -1, 0, 1), views.narrow(s, -1, s._aval.shape[-1] - 1, 1)
        made = views.squeeze(first / last if p == 2 else last / first, -1)
    else:
        check_square(f"linalg.cond(ord={p})", A._aval)
        made = _norm_of_inverse(A, p)
    return with_out("linalg_cond", out, made)


def _norm_of_inverse(A: Tensor, p: Any) -> Any:
    """The product of the norms of a matrix and its inverse."""
    if p == "nuc":
        s = svdvals(A)
        return s.sum(-1) * s.reciprocal().sum(-1)
    inverse, info = call("linalg_inv_ex", A)[:2]
    inverse = inverse.masked_fill(views.unsqueeze(views.unsqueeze(info, -1), -1) != 0, math.inf)
    return (matrix_norm(A, p) * matrix_norm(inverse, p)).nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)


@public("torch")
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The `pow`-norms over all dimensions but `dim`, which are kept with size 1; of all elements where `dim` is -1."""
    if dim == -1:
        return norm_(v, pow)
    shape = v._aval.shape
    dim = wrap_dim(dim, len(shape))
    ones = (1,) * (len(shape) - 1)
    if dim == 0:
        return view(norm_(view(contiguous(v), (shape[0], -1)), pow, 1), (shape[0], *ones))
    if dim == len(shape) - 1:
        return view(norm_(view(contiguous(v), (-1, shape[-1])), pow, 0), (*ones, shape[-1]))
    return views.transpose(norm_except_dim(views.transpose(v, 0, dim), pow, 0), 0, dim)


@public("torch")
def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """v with the norms g over all dimensions but `dim` (over all where that is -1). RuntimeError where they are on other devices."""
    if v.device != g.device:
        raise RuntimeError(f"weight_norm: expected v and g to be on the same device, but got {v.device} and {g.device}")
    if dim in (0, v._aval.ndim - 1) and not v.is_complex():
        return call("_weight_norm_interface", v, g, dim)[0]
    return v * (g / norm_except_dim(v, 2, dim))


@public("torch")
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Deprecated: `torch.linalg.vector_norm` of 2 over one or two dimensions; over all where there are none. Of floating point or complex numbers."""
    warn_once(_LEFT.format("frobenius", "linalg.vector_norm(A, 2., dim, keepdim)"))
    dims = as_int_dims(dim) or ()
    if len(dims) > 2:
        raise RuntimeError(f"Expected at most 2 dimensions, but got {len(dims)} dimensions instead.")
    return norm_(input, 2.0, dims or None, keepdim, out=out)


@public("torch")
def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Deprecated: the nuclear `torch.linalg.matrix_norm` of a matrix, or of those in two dimensions."""
    warn_once(_LEFT.format("nuclear", "linalg.matrix_norm(A, 'nuc', dim, keepdim)"))
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, out=out)


_LEFT = "at::{}_norm is deprecated and it is just left for JIT compatibility. It will be removed in a future PyTorch release. Please use `{}` instead"
