"""`torch.nn.functional`: `linear`, `bilinear`, `grouped_mm`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import expect_tensor
from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.autocasting import as_one_operator
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.hot import affine
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import check_added
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.overloads import matmul
from torchgrad_jax.functions.views import reshape, t
from torchgrad_jax.operators import linear as ops_linear  # noqa: F401 - declares the operators used here
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.recorder import per_thread

__all__ = ["bilinear", "grouped_mm", "linear"]

_ADDMM = registry["linear_addmm"].bind((ARRAY, ARRAY, ARRAY))
_TRILINEAR = registry["_trilinear"].bind((ARRAY, ARRAY, ARRAY))


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias, for any number of leading dimensions; a one-dimensional weight gives one output without dimension.

    TypeError, RuntimeError where types, shapes or dtypes do not fit.
    """
    rec = per_thread.recorder
    if type(input) is Tensor and isinstance(weight, Tensor) and not rec.rare and (bias is None or isinstance(bias, Tensor)):
        made = affine(rec, input, weight, bias)
        if made is not None:
            return made if out is None else with_out("linear", out, made)
    return _general(input, weight, bias, out=out)


linear.casts_for = linear  # type: ignore[attr-defined] - `_general` does, the way of all but plain calls


def _general(input: Tensor, weight: Tensor, bias: Tensor | None, *, out: Tensor | None) -> Tensor:
    return with_out("linear", out, _composed(input, weight, bias))


_general = as_one_operator(_general, "linear")


def _composed(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    expect_tensor("linear", input)
    expect_tensor("linear", weight, "weight", 2)
    if bias is not None:
        expect_tensor("linear", bias, "bias", 3)
    x, w = input._aval, weight._aval
    if x.ndim == 0 or w.ndim == 0:
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {x.ndim}D and {w.ndim}D")
    if bias is None:
        return matmul(input, t(weight))
    if x.ndim == 2:
        return apply(_ADDMM, (bias, input, t(weight)))
    check_added((*x.shape[:-1], *w.shape[:-1]), bias._aval.shape)
    if (x.ndim == 1 or input.is_contiguous()) and bias._aval.ndim == 1 and w.ndim == 2:
        rows = reshape(input, (math.prod(x.shape[:-1]), x.shape[-1]))  # before the transpose, as PyTorch counts its nodes
        return reshape(apply(_ADDMM, (bias, rows, t(weight))), (*x.shape[:-1], w.shape[0]))
    return matmul(input, t(weight)) + bias


@public("torch")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """For each output k, input1 @ weight[k] @ input2, plus bias[k]. RuntimeError where sizes or dtypes do not fit."""
    for i, x in enumerate((input1, input2, weight)):
        expect_tensor("bilinear", x, ("input1", "input2", "weight")[i], i + 1)
    a, b, w = input1._aval, input2._aval, weight._aval
    if not a.dtype == b.dtype == w.dtype == (a if bias is None else bias._aval).dtype:
        given = {"input1": a, "input2": b, "weight": w} | ({} if bias is None else {"bias": bias._aval})
        shown = ", ".join(f"{name}: {dtypes.of(x.dtype).word}" for name, x in given.items())
        raise RuntimeError(f"All tensors must have the same dtype, got {shown}")
    if a.ndim != b.ndim:
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {a.ndim} and {b.ndim}")
    for i in range(a.ndim - 1):
        if a.shape[i] != b.shape[i]:
            raise RuntimeError(f"bilinear(): input batch dimensions do not match at dim {i}: got {a.shape[i]} and {b.shape[i]}")
    for name, x, n in (("input1", a.shape[-1], w.shape[1]), ("input2", b.shape[-1], w.shape[2])):
        if x != n:
            raise RuntimeError(f"bilinear(): {name} size does not match weight size: got {x} but expected {n}")
    if bias is not None and bias._aval.shape[0] != w.shape[0]:
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {bias._aval.shape[0]} but expected {w.shape[0]}")
    rows = math.prod(a.shape[:-1])
    made = apply(_TRILINEAR, (reshape(input1, (rows, a.shape[-1])), weight, reshape(input2, (rows, b.shape[-1]))))
    made = reshape(made, (*a.shape[:-1], w.shape[0]))
    return made if bias is None else made + bias


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:  # fmt: skip
    """One product of matrices for each of G groups, which are parts of a dimension.

    mat_a (M, K), mat_b (G, K, N): groups of rows, result (M, N). (G, M, K), (K, N): groups of columns, (M, N). (M, K), (K, N): groups of what is
    summed over, (G, M, N). (G, M, K), (G, K, N): as `torch.bmm`. offs: int32, (G,), where each group ends, unless both have three dimensions; what is
    after the last end gives zeros. bias: None, as there is none in PyTorch yet; out_dtype: that of mat_a.

    RuntimeError where shapes or dtypes do not fit.
    """
    _check_grouped(mat_a, mat_b, offs, bias, out_dtype)
    return call("_grouped_mm", mat_a, mat_b, offs)


def _check_grouped(mat_a: Tensor, mat_b: Tensor, offs: Tensor | None, bias: Tensor | None, out_dtype: Any) -> None:
    a, b = mat_a._aval, mat_b._aval
    for name, x in (("mat_a", a), ("mat_b", b)):
        if x.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    for name, x in (("mat_a", a), ("mat_b", b)):
        if dtypes.category(x.dtype) != dtypes.FLOAT or x.dtype.itemsize not in (2, 4):
            raise RuntimeError(f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {dtypes.of(x.dtype).title}")
    if (offs is None) != (a.ndim == b.ndim == 3):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {dtypes.of(a.dtype).word} != {dtypes.of(b.dtype).word}")
    groups = [x.shape[0] for x in (a, b) if x.ndim == 3]
    if offs is not None:
        if offs._aval.ndim != 1:
            raise RuntimeError("offs has to be 1D")
        if offs._aval.dtype != np.int32:
            raise RuntimeError("Offsets have to be int32")
        groups.append(offs._aval.shape[0])
    if len(set(groups)) > 1:
        raise RuntimeError("matrix batch sizes have to match")
    if any(not _aligned(x) for x in (mat_a, mat_b)):
        raise RuntimeError("strides should be multiple of 16 bytes")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype is not None and out_dtype != mat_a.dtype:
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")


def _aligned(x: Tensor) -> bool:
    """Whether rows, or columns, of the matrices begin at multiples of 16 bytes, as PyTorch's kernels want them."""
    rows, columns = x._strides()[-2:]
    return (rows if columns == 1 else columns) * x._aval.dtype.itemsize % 16 == 0
