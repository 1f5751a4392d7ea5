"""Matrix products beyond mm, einsum, and the tables of torch.linalg."""

from __future__ import annotations

import math
from typing import Any

from torchgrad_jax.calling.expecting import elements, elements_or_listed
from torchgrad_jax.calling.generate import function_of
from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.order import in_rows
from torchgrad_jax.core.tensor import Tensor, wrap_dim
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions import overloads, views
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.indexing import copy_
from torchgrad_jax.functions.matrices import decompositions
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.kernels.linalg_errors import LinAlgError, check_square
from torchgrad_jax.runtime.user_code import warn_once

# ---------------------------------------------------------------------- products of tensors


@public("torch", "torch.ger", "torch.Tensor", "torch.Tensor.ger")
def outer(input: Tensor, vec2: Tensor, *, out: Any = None) -> Tensor:
    """The products of all pairs of elements of two vectors. RuntimeError for what is not a vector."""
    for name, v in (("self", input), ("vec2", vec2)):
        if v._aval.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {v._aval.ndim}-D")
    return with_out("outer", out, views.reshape(input, (-1, 1)) * vec2, (input, vec2))


@public("torch")
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    """The sum of products over the last `dims` dimensions of a and the first of b, or over two lists of dimensions."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, (tuple, list)):
        left, right = (list(d) if isinstance(d, (tuple, list)) else [d] for d in dims)
    else:
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a._aval.ndim, b._aval.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        left, right = list(range(-dims, 0)), list(range(dims))
    return with_out("tensordot", out, _contract(a, b, left, right))


def _contract(a: Tensor, b: Tensor, left: list[int], right: list[int]) -> Tensor:
    if len(left) != len(right):
        raise RuntimeError("both dimension lists should have same length")
    if a._aval.dtype != b._aval.dtype:
        raise RuntimeError("both inputs should have same dtype")
    m, n = a._aval.shape, b._aval.shape
    for i, j in zip(left, right, strict=True):
        p, q = m[wrap_dim(i, len(m))], n[wrap_dim(j, len(n))]
        if p != q and 1 not in (p, q):
            raise RuntimeError(f"contracted dimensions need to match, but first has size {p} in dim {i} and second has size {q} in dim {j}")
        if p == 1 != q:
            b = b.sum(j, keepdim=True, dtype=b.dtype)
        elif q == 1 != p:
            a = a.sum(i, keepdim=True, dtype=a.dtype)
    m, n = a._aval.shape, b._aval.shape
    left, right = [wrap_dim(i, len(m)) for i in left], [wrap_dim(j, len(n)) for j in right]
    rows, columns = [d for d in range(len(m)) if d not in left], [d for d in range(len(n)) if d not in right]
    inner = math.prod(m[d] for d in left)
    outer_a, outer_b = tuple(m[d] for d in rows), tuple(n[d] for d in columns)
    x, y = views.permute(a, (*rows, *left)), views.permute(b, (*right, *columns))
    if math.prod(outer_a) == math.prod(outer_b) == 1:
        if x.is_contiguous() and y.is_contiguous():
            made = _dot(views.flatten(x), views.flatten(y))
        else:
            made = (views.squeeze(x) * views.squeeze(y)).sum(dtype=a.dtype)
        return views.reshape(made, outer_a + outer_b)
    product = _mm(views.reshape(x, (math.prod(outer_a), inner)), views.reshape(y, (inner, math.prod(outer_b))))
    return views.reshape(product, outer_a + outer_b)


_mm, _dot, _vdot = (function_of(registry[name]) for name in ("mm", "dot", "vdot"))


@public("torch", "torch.Tensor")
def inner(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The sum of products over the last dimensions; with a number, its multiple."""
    a, b = input._aval, other._aval
    if not a.ndim or not b.ndim:
        return with_out("inner", out, input * other)
    if a.shape[-1] != b.shape[-1]:
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes {list(a.shape)} and {list(b.shape)}")
    return with_out("inner", out, _contract(input, other, [-1], [-1]))


@public("torch", "torch.Tensor")
def kron(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The Kronecker product: each element of input times the whole of other."""
    ndim = max(input._aval.ndim, other._aval.ndim)
    a = (1,) * (ndim - input._aval.ndim) + input._aval.shape
    b = (1,) * (ndim - other._aval.ndim) + other._aval.shape
    x = call("_unsafe_view", input, tuple(n for m in a for n in (m, 1)))
    y = call("_unsafe_view", other, tuple(n for m in b for n in (1, m)))
    return with_out("kron", out, call("_unsafe_view", x * y, tuple(m * n for m, n in zip(a, b, strict=True))), (input, other))


@public("torch.linalg")
def multi_dot(tensors: Any, *, out: Any = None) -> Tensor:
    """The product of several matrices in the cheapest order; the first and the last may be vectors."""
    found = elements(tensors)
    if len(found) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(found)}")
    for place, t, at in (("first", found[0], 0), ("last", found[-1], len(found) - 1)):
        if t._aval.ndim not in (1, 2):
            raise RuntimeError(f"multi_dot(): the {place} tensor must be 1D or 2D but got {t._aval.ndim}D")
        if t._aval.ndim == 1:
            found[at] = views.unsqueeze(t, 0 if at == 0 else -1)
    for i, t in enumerate(found[1:-1], 1):
        if t._aval.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {t._aval.ndim}D")
    for i, (a, b) in enumerate(zip(found, found[1:], strict=False)):
        if a._aval.shape[1] != b._aval.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(a._aval.shape)} and {list(b._aval.shape)} cannot be multiplied"
            )  # fmt: skip
    product = _chain(found, _cheapest_order([t._aval.shape[0] for t in found] + [found[-1]._aval.shape[1]]), 0, len(found) - 1)
    shape = found[0]._aval.shape[:1] * (tensors[0]._aval.ndim == 2) + found[-1]._aval.shape[1:] * (tensors[-1]._aval.ndim == 2)
    return with_out("multi_dot", out, views.reshape(product, shape))


def _cheapest_order(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut each part of a chain of matrices (Cormen et al., "Introduction to Algorithms", matrix-chain order)."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    cut: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            if count == 3:  # of three matrices, from the left where both ways cost the same
                cut[i, j] = j - 1 if _left_first(sizes) else i
                continue
            options = {k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)}
            cut[i, j] = min(options, key=options.__getitem__)
            cost[i, j] = options[cut[i, j]]
    return cut


def _left_first(sizes: list[int]) -> bool:
    a, b, c, d = sizes
    return a * c * (b + d) <= b * d * (a + c)


def _chain(tensors: list[Tensor], cut: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return tensors[i]
    k = cut[i, j]
    return _mm(_chain(tensors, cut, i, k), _chain(tensors, cut, k + 1, j))


@public("torch")
def chain_matmul(*matrices: Any, out: Any = None) -> Tensor:
    """The product of several matrices in the cheapest order."""
    found = elements_or_listed(matrices)
    warn_once(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use torch.linalg.multi_dot instead, which accepts a list "
        "of two or more tensors rather than multiple parameters."
    )
    for t in found:
        if t._aval.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {t._aval.ndim}, expected 2 instead.")
    return found[0] if len(found) == 1 else multi_dot(found, out=out)


@public("torch", "torch.Tensor", "torch.linalg")
def matrix_power(input: Tensor, n: int, *, out: Any = None) -> Tensor:
    """The n-th power of square matrices; of the inverse for negative n."""
    check_square("linalg.matrix_power", input._aval)
    return with_out("matrix_power", out, _power(input, n))


def _power(a: Tensor, n: int) -> Tensor:
    if n == 0:
        return copy_(views.clone(a), call("_identity_like", a.detach()))
    if n < 0:
        return _power(decompositions.inv(a), -n) if n < -1 else decompositions.inv(a)
    if n == 1:
        return in_rows(views.clone(a))
    made: Any = None
    square = a
    if n == 3:
        return overloads.matmul(overloads.matmul(a, a), a)
    while True:
        if n & 1:
            made = square if made is None else overloads.matmul(made, square)
        n >>= 1
        if not n:
            return made
        square = overloads.matmul(square, square)


@public("torch", "torch.Tensor")
def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Any = None) -> Tensor:
    """The vector product along a dimension of size 3: the first such without dim."""
    if dim is None:
        sizes = input._aval.shape
        if 3 not in sizes:
            raise RuntimeError("no dimension of size 3 in input")
        warn_once(
            "Using torch.cross without specifying the dim arg is deprecated.\nPlease either pass the dim explicitly or simply use torch.linalg.cross."
            "\nThe default value of dim will change to agree with that of linalg.cross in a future release."
        )
        dim = sizes.index(3)
    return _linalg_cross(input, other, dim=dim, out=out)


@public("torch.linalg.cross")
def _linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """The vector product along a dimension of size 3."""
    return with_out("linalg_cross", out, call("linalg_cross", input, other, dim), (input, other))


@public("torch.linalg")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Any = None) -> Tensor:
    """The sum over `dim` of the products, x being conjugated."""
    kinds = [dtypes.of(t._aval.dtype) for t in (x, y)]
    if not (kinds[0].is_floating_point or kinds[0].is_complex):
        raise RuntimeError(f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {kinds[0].title}")
    if kinds[0] is not kinds[1]:
        raise RuntimeError(
            f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {kinds[0].title} and y of type {kinds[1].title} instead"
        )
    if x._aval.ndim == y._aval.ndim == 1 and dim in (0, -1):
        return with_out("vecdot", out, _vdot(x, y))
    left = x.conj() if x.is_complex() else x
    return with_out("vecdot", out, (left * y).sum(dim))


@public("torch.Tensor.__rmatmul__")
def _rmatmul(self: Tensor, other: Any) -> Any:
    """other @ self, where `other` does not know how."""
    return overloads.matmul(other, self) if isinstance(other, Tensor) else NotImplemented


public("torch.linalg.LinAlgError")(LinAlgError)
