"""`torch.nn.functional.scaled_dot_product_attention`."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.calling.entries import forget_all
from torchgrad_jax.calling.expecting import expect_tensor
from torchgrad_jax.core.autocasting import as_one_operator
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.order import arrange, in_rows, lay_out
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.converting import broadcast_shapes, check_added
from torchgrad_jax.declaration.memory_order import result_layout
from torchgrad_jax.functions.conversion import cast
from torchgrad_jax.functions.creation import from_data
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.overloads import matmul, with_number
from torchgrad_jax.functions.random import default_generator, draw
from torchgrad_jax.functions.shaping import repeat_interleave
from torchgrad_jax.functions.views import transpose
from torchgrad_jax.nn.dropout import check_probability
from torchgrad_jax.operators import attention as ops_attention  # noqa: F401 - declares the operators used here
from torchgrad_jax.runtime.recorder import per_thread

__all__ = ["scaled_dot_product_attention"]


class _Kernels(dict[str, bool]):
    """What calls come to may be otherwise once one of them was changed."""

    def __setitem__(self, name: str, allowed: bool) -> None:
        super().__setitem__(name, allowed)
        forget_all()

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        forget_all()


# Which of PyTorch's kernels may be chosen: `torch.backends.cuda.enable_flash_sdp` and its like, `torch.nn.attention.sdpa_kernel`.
kernels = _Kernels({"flash": True, "mem_efficient": True, "math": True, "cudnn": True})


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(query @ key.T * scale + mask) @ value over the last two dimensions (positions, features).

    A boolean `attn_mask` is true where a query sees a key; a floating one is added to the scores; it expands to their shape. `is_causal`
    lets each query see the keys up to its own position. `scale` is by default 1 / sqrt(features). `dropout_p` applies whether
    training or not. `enable_gqa` lets several heads of queries share one of keys and values. A row that sees no key gives 0.

    RuntimeError where sizes or dtypes do not fit.
    """
    for i, x in enumerate((query, key, value)):
        expect_tensor("scaled_dot_product_attention", x, ("query", "key", "value")[i], i + 1)
    q, k, v = query._aval, key._aval, value._aval
    mask = None if attn_mask is None else attn_mask._aval
    tracked = per_thread.recorder.grad_enabled
    fused = _is_fused(q, k, v, mask, tracked and attn_mask is not None and attn_mask._rg, bool(dropout_p), bool(enable_gqa)) and _may_be_fused(
        query, key, value
    )
    if not (fused or kernels["math"]):
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the math kernel and the fused "
            "kernels."
        )
    if is_causal and attn_mask is not None and not fused:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    scores = _scores_shape(q, k, v, bool(enable_gqa))
    empty = 0 in q.shape or 0 in k.shape
    if mask is not None and not empty:
        check_added(scores, mask.shape)
    if dropout_p:
        check_probability(dropout_p, RuntimeError)
    dropped = _drawn(query, scores, dropout_p) if dropout_p else None
    factor = (1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0) if scale is None else float(scale)
    if tracked and not (fused or empty) and any([x is not None and x.requires_grad for x in (query, key, value, attn_mask)]):
        return _composed(query, key, value, attn_mask, dropped, is_causal, factor, enable_gqa)
    name = "fused" if fused else "empty" if empty else "rounded" if q.dtype.itemsize == 2 else "single" if q.ndim == 2 else "batched"
    made = call("attention_" + name, query, key, value, attn_mask, dropped, bool(is_causal), factor)[0]
    layout = result_layout(q.shape, ((q.shape, query._strides()),), True) if fused else None
    return made if layout is None else arrange(in_rows(made), *layout)  # it lies in memory as the queries do


scaled_dot_product_attention = as_one_operator(scaled_dot_product_attention, "scaled_dot_product_attention")


def _drawn(query: Tensor, scores: tuple[int, ...], p: float) -> Tensor:
    """The mask of dropout for scores of this shape, which lie in memory row by row, however the queries do."""
    dtype = query._aval.dtype
    return draw(scores, lambda shape: default_generator.dropout_mask(shape, p, dtype), query.device)


def _composed(
    query: Any, key: Any, value: Any, attn_mask: Any, dropped: Any, is_causal: bool, factor: float, enable_gqa: bool
) -> Tensor:  # fmt: skip
    """The same of the operators that PyTorch composes it of where its kernel does not apply."""
    dtype = query.dtype
    if dtype.itemsize == 2:
        query, key, value = (cast(x, dtypes.float32) for x in (query, key, value))
    if enable_gqa and query._aval.ndim > 2:
        heads = query._aval.shape[-3]
        key, value = (repeat_interleave(x, heads // x._aval.shape[-3], x._aval.ndim - 3) for x in (key, value))
    root = math.sqrt(abs(factor))
    scores: Any = matmul(_scaled(query, math.copysign(root, factor)), _scaled(transpose(key, -2, -1), root))
    if is_causal:
        seen = np.tri(*scores._aval.shape[-2:], dtype=bool)
        attn_mask = wrap(from_data(np.where(seen, 0, -np.inf).astype(scores._aval.dtype), None, scores.device))
    elif attn_mask is not None and attn_mask._aval.dtype == np.bool_:
        attn_mask = scores.new_zeros(attn_mask._aval.shape).masked_fill(attn_mask.logical_not(), -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    weights: Any = call("_safe_softmax", scores, -1)
    return cast(matmul(weights if dropped is None else weights * cast(dropped, weights.dtype), value), dtype)


def _scaled(x: Tensor, number: float) -> Tensor:
    """A multiple, which lies in memory as `x` does."""
    strides = x._strides()
    return lay_out(with_number("mul", x, number), tuple(sorted(range(len(strides)), key=lambda d: (-strides[d], -x._aval.shape[d], d))))


def _check_inputs(q: Any, k: Any, v: Any) -> None:
    if not q.dtype == k.dtype == v.dtype:
        a, b, c = (dtypes.of(x.dtype).word for x in (q, k, v))
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {a} key.dtype: {b} and value.dtype: {c} instead."
        )
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise RuntimeError(
            f"Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: {q.ndim} key.dim: {k.ndim} "
            f"and value.dim: {v.ndim} instead."
        )


def _check_mask(q: Any, mask: Any) -> None:
    if mask.dtype not in (np.bool_, np.float32) and mask.dtype != q.dtype:
        raise RuntimeError(
            f"Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {dtypes.of(mask.dtype).word} "
            f"and  query.dtype: {dtypes.of(q.dtype).word} instead."
        )
    if mask.ndim < 2 and q.ndim == 4:
        raise IndexError(f"Dimension out of range (expected to be in range of [-{max(mask.ndim, 1)}, {max(mask.ndim, 1) - 1}], but got -2)")


def _may_be_fused(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a kernel that is one operator is on, and takes features that lie so. On the CPU there is one."""
    if not kernels["flash"] and (query.device.type == "cpu" or not (kernels["mem_efficient"] or kernels["cudnn"])):
        return False
    return query._strides()[-1] == key._strides()[-1] == value._strides()[-1] == 1


@lru_cache(1024)
def _is_fused(q: Any, k: Any, v: Any, mask: Any, mask_is_tracked: bool, drops: bool, enable_gqa: bool) -> bool:
    """Whether PyTorch's CPU kernel takes these inputs, told by their avals. RuntimeError where dtypes or dimensions do not fit."""
    _check_inputs(q, k, v)
    if mask is not None:
        _check_mask(q, mask)
        sizes = zip(reversed(mask.shape), reversed((*q.shape[:-1], k.shape[-2])), strict=False)
        if mask_is_tracked or mask.ndim not in (2, 4) or not all(n in (1, m) for n, m in sizes):
            return False
    return (
        q.ndim == k.ndim == v.ndim == 4
        and not drops
        and 0 not in q.shape + k.shape + v.shape
        and q.shape[-1] == k.shape[-1] == v.shape[-1]
        and q.shape[0] == k.shape[0] == v.shape[0]
        and (enable_gqa or q.shape[1] == k.shape[1] == v.shape[1])
    )


@lru_cache(1024)
def _scores_shape(q: Any, k: Any, v: Any, enable_gqa: bool) -> tuple[int, ...]:
    """The shape of query @ key.T. RuntimeError where the three do not fit."""
    leading_k, leading_v = k.shape[:-2], v.shape[:-2]
    if enable_gqa and q.ndim > 2:
        heads = q.shape[-3]
        if heads % k.shape[-3] or heads % v.shape[-3]:
            raise RuntimeError("Number of heads in key and value must divide the number of heads in ")
        leading_k, leading_v = (*leading_k[:-1], heads), (*leading_v[:-1], heads)
    leading = broadcast_shapes(q.shape[:-2], leading_k)
    _check_product((*leading, *q.shape[-2:]), (k.shape[-1], k.shape[-2]))
    broadcast_shapes(leading, leading_v)
    scores = (*leading, q.shape[-2], k.shape[-2])
    _check_product(scores, v.shape[-2:])
    return scores


def _check_product(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    if left[-1] == right[0]:
        return
    if len(left) == 2:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({left[0]}x{left[1]} and {right[0]}x{right[1]})")
    batch = math.prod(left[:-2])
    raise RuntimeError(
        f"Expected size for first two dimensions of batch2 tensor to be: [{batch}, {left[-1]}] but got: [{batch}, {right[0]}]."
    )  # fmt: skip
