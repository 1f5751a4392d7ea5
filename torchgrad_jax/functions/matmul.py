"""`matmul` of tensors of any dimensions, by the products of vectors, matrices and batches that are operators. Compiled where there is a compiler
(`torchgrad_jax/_typed`)."""

from __future__ import annotations

import math
from typing import Any

from torchgrad_jax.calling.expecting import not_a_tensor
from torchgrad_jax.calling.out import write_out
from torchgrad_jax.core.called import binary
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.fields import needs_grad
from torchgrad_jax.core.hot import batches
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.converting import broadcast_shapes
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions.views import contiguous, expanded, in_shape, squeeze, t, transpose, unsafe_view, unsqueeze
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.recorder import per_thread

MM = registry["mm"].bind((ARRAY, ARRAY))
_BMM = registry["bmm"].bind((ARRAY, ARRAY))
MV = registry["mv"].bind((ARRAY, ARRAY))
DOT = registry["dot"].bind((ARRAY, ARRAY))
_mm = binary(MM, "mm", lambda input, other: apply(MM, (input, other)))
_bmm = binary(_BMM, "bmm", lambda input, other: apply(_BMM, (input, other)))
_SQUEEZE_0 = registry["_squeeze_written"].bind((ARRAY, Static(0)))


def general_matmul(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """The matrix product by NumPy's rule: vectors, matrices, batches that broadcast."""
    if not isinstance(other, Tensor):
        raise not_a_tensor("matmul", other, "other", 2)
    a, b = input._aval, other._aval
    if a.ndim == 0 or b.ndim == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {a.ndim}D and {b.ndim}D")
    if a.ndim == 1 and b.ndim == 1:
        made = apply(DOT, (input, other))
    elif a.ndim == 2 and b.ndim == 1:
        made = apply(MV, (input, other))
    elif a.ndim == 1 and b.ndim == 2:
        made = apply(_SQUEEZE_0, (apply(MM, (unsqueeze(input, 0), other)),))
    elif a.ndim == 2 and b.ndim == 2:
        made = apply(MM, (input, other))
    elif b.ndim <= 2 and _folds(input, other):
        made = _fold(input, other)
    elif a.ndim <= 2 and _folds_turned(input, other):
        made = _fold_turned(input, other)
    else:
        made = _batched(input, other)
    return made if out is None else write_out("matmul", out, made)


def _folds(batch: Tensor, other: Tensor) -> bool:
    """Whether PyTorch multiplies a batch of matrices and one matrix (or vector) as two matrices: where the latter needs a gradient, which then
    is no sum over the batch, or where that copies nothing."""
    shape, strides = batch._aval.shape, batch._strides()
    return needs_grad(other) or all([strides[i] == shape[i + 1] * strides[i + 1] for i in range(len(shape) - 2)])


def _folds_turned(other: Tensor, batch: Tensor) -> bool:
    """The same for a matrix or vector before a batch, which is then turned."""
    if needs_grad(other) or other._aval.ndim == 2:
        return needs_grad(other)
    return _folds(transpose(batch, -2, -1), other)


def _fold_turned(other: Tensor, batch: Tensor) -> Tensor:
    turned = transpose(batch, -2, -1)
    if other._aval.ndim == 1:
        return _fold(turned, other)
    return contiguous(transpose(_fold(turned, t(other)), -2, -1))


def _fold(input: Tensor, other: Tensor) -> Tensor:
    """A batch times one matrix (or vector): the batch's rows as one long matrix."""
    shape = input._aval.shape
    rows = in_shape(input, (math.prod(shape[:-1]), shape[-1]))
    if other._aval.ndim == 1:
        return unsafe_view(apply(MV, (rows, other)), shape[:-1])
    return unsafe_view(_mm(rows, other), (*shape[:-1], other._aval.shape[1]))


def _is_followed(*tensors: Tensor) -> bool:
    """Whether a graph is recorded of what is computed of these, or something watches."""
    rec = per_thread.recorder
    return rec.rare > 0 or (rec.grad_enabled and any([needs_grad(t) for t in tensors]))


def _batched(input: Tensor, other: Tensor) -> Tensor:
    a, b = input._aval, other._aval
    if a.ndim == 3 and a.shape[0] == b.shape[0] and b.ndim == 3 and not _is_followed(input, other):
        return _bmm(input, other)  # PyTorch's views around it are seen in its graph alone
    rec = per_thread.recorder
    if a.ndim > 3 and not rec.rare and (made := batches(rec, input, other)) is not None:
        return made
    left_vector, right_vector = input._aval.ndim == 1, other._aval.ndim == 1
    x = unsqueeze(input, 0) if left_vector else input
    y = unsqueeze(other, 1) if right_vector else other
    left, right = x._aval.shape, y._aval.shape
    batch = broadcast_shapes(left[:-2], right[:-2])
    size = math.prod(batch)
    product = _bmm(wrap_shape(x, (size, *left[-2:]), batch), wrap_shape(y, (size, *right[-2:]), batch))
    if left[-1] != right[-2] or x._aval.dtype != y._aval.dtype:  # bmm's own words for what does not fit
        return product
    if right_vector:
        product = squeeze(product, -1)
    shape = batch + (() if left_vector else (left[-2],)) + (() if right_vector else (right[-1],))
    return unsafe_view(product, shape)


def wrap_shape(x: Tensor, shape: tuple[int, ...], batch: tuple[int, ...]) -> Tensor:
    """`x` expanded over the batch dimensions, which then become one."""
    full = (*batch, *shape[1:])
    return in_shape(expanded(x, full, full), shape)
