"""Scaled dot-product attention (Vaswani et al. 2017) as one operator.

The weights are a second result, which backward uses: with dp = grad @ value.T, the scores' gradient is
weights * (dp - sum(dp * weights)). In half precision PyTorch's kernel for four dimensions rounds between its products, and so does this.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_attention, numpy_rows
from torchgrad_jax.declaration.converting import is_half, rounded, where, wide
from torchgrad_jax.declaration.operator import Together, op
from torchgrad_jax.declaration.promotion import fitting
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.operators.activation import safe_softmax_along, softmax_along, softmax_grad_along
from torchgrad_jax.operators.matrix import PRECISION
from torchgrad_jax.runtime.baseline import loops
from torchgrad_jax.runtime.baseline.attention import fits_loop, how_of_attention
from torchgrad_jax.runtime.compiling import primitives
from torchgrad_jax.runtime.compiling.foreign import ATTENTION


def _times(x: Any, y: Any) -> Any:
    return jnp.matmul(x, y, precision=PRECISION)


def _of_all_heads(x: Any, heads: int) -> Any:
    """Each head of keys or values repeated for the queries' heads that share it."""
    return x if x.ndim < 3 or x.shape[-3] in (1, heads) or heads % x.shape[-3] else jnp.repeat(x, heads // x.shape[-3], axis=-3)


def _sum_of_shared(g: Any, shape: tuple[int, ...]) -> Any:
    """The gradient of what `_of_all_heads` repeated."""
    if len(shape) < 3 or shape[-3] in (1, g.shape[-3]):
        return g
    return g.reshape(*g.shape[:-3], shape[-3], g.shape[-3] // shape[-3], *g.shape[-2:]).sum(-3)


def _heads(query: Any) -> int:
    return query.shape[-3] if query.ndim > 2 else 1


def _scores(query: Any, key: Any, attn_mask: Any, is_causal: bool, scale: float) -> Any:
    scores = _times(wide(query) * scale, jnp.swapaxes(_of_all_heads(wide(key), _heads(query)), -1, -2))
    if is_causal:
        rows, columns = scores.shape[-2:]
        scores = where(np.tri(rows, columns, dtype=bool), scores, -jnp.inf)
    if attn_mask is None:
        return scores
    return where(attn_mask, scores, -jnp.inf) if attn_mask.dtype == np.bool_ else scores + wide(attn_mask).astype(scores.dtype)


def _weights(scores: Any, masked: bool) -> Any:
    """The softmax over the last dimension. masked: whether there may be rows of -inf alone, where it is 0."""
    if not scores.size:
        return scores
    return safe_softmax_along(scores, -1) if masked else softmax_along(scores, -1)


def _dropped(x: Any, dropout_mask: Any) -> Any:
    return x if dropout_mask is None else x * dropout_mask.astype(x.dtype)


def _rounds(query: Any, dropout_mask: Any) -> bool:
    return is_half(query.dtype) and query.ndim == 4 and dropout_mask is None


def _output(weights: Any, query: Any, value: Any, dropout_mask: Any) -> Any:
    values = _of_all_heads(wide(value), _heads(query))
    if not _rounds(query, dropout_mask):
        return _times(_dropped(weights, dropout_mask), values)
    # What is rounded are the exponentials, the largest of which is 1, before the division by their sum.
    largest = jnp.max(weights, axis=-1, keepdims=True, initial=0)
    return _times(rounded(weights / where(largest == 0, 1, largest), query), values) * largest


def _scores_grad(grad0: Any, query: Any, value: Any, weights: Any, dropout_mask: Any, grad1: Any) -> Any:
    dp = _times(wide(grad0), jnp.swapaxes(_of_all_heads(wide(value), _heads(query)), -1, -2))
    dp = _dropped(dp, dropout_mask) + grad1
    if not _rounds(query, dropout_mask):
        return softmax_grad_along(dp, weights, -1)
    output = rounded(_output(weights, query, value, dropout_mask), query)
    mean = jnp.sum(wide(grad0) * output, axis=-1, keepdims=True) + jnp.sum(grad1 * weights, axis=-1, keepdims=True)
    return rounded(weights * (dp - mean), query)


def _query_grad(grad0: Any, query: Any, key: Any, value: Any, weights: Any, dropout_mask: Any, scale: Any, grad1: Any) -> Any:
    return _times(_scores_grad(grad0, query, value, weights, dropout_mask, grad1), _of_all_heads(wide(key), _heads(query))) * scale


def _key_grad(grad0: Any, query: Any, key: Any, value: Any, weights: Any, dropout_mask: Any, scale: Any, grad1: Any) -> Any:
    ds = _scores_grad(grad0, query, value, weights, dropout_mask, grad1)
    return _sum_of_shared(_times(jnp.swapaxes(ds, -1, -2), wide(query)) * scale, key.shape)


def _value_grad(grad0: Any, value: Any, weights: Any, dropout_mask: Any) -> Any:
    weights = rounded(weights, value) if _rounds(value, dropout_mask) else _dropped(weights, dropout_mask)
    return _sum_of_shared(_times(jnp.swapaxes(weights, -1, -2), wide(grad0)), value.shape)


def _attended(query: Any, key: Any, value: Any, mask: Any = None, *, is_causal: bool, scale: float) -> tuple[Any, Any]:
    """The output and the weights, as jax.numpy says them where there is no loop of C's."""
    weights = _weights(_scores(query, key, mask, is_causal, scale), mask is not None)
    return _output(weights, query, value, None), weights


def _attended_back(grad: Any, query: Any, key: Any, value: Any, weights: Any, *, is_causal: bool, scale: float) -> tuple[Any, Any, Any]:
    """Their gradients, of that of the output, as jax.numpy says them."""
    given = (value, weights, None)
    return (
        _query_grad(grad, query, key, *given, scale, 0),
        _key_grad(grad, query, key, *given, scale, 0),
        _value_grad(grad, *given),
    )


def _added(attn_mask: Any) -> Any:
    """A mask as what is added to the scores, of four dimensions."""
    added = where(attn_mask, np.float32(0), np.float32(-np.inf)) if attn_mask.dtype == np.bool_ else attn_mask.astype(np.float32)
    return added.reshape((1,) * (4 - attn_mask.ndim) + attn_mask.shape)


def _shapes(query: Any, key: Any, *others: Any, **parameters: Any) -> list[tuple[int, ...]]:
    return [query.shape, (*query.shape[:3], key.shape[2])]


def _shapes_back(grad: Any, query: Any, key: Any, value: Any, weights: Any, **parameters: Any) -> list[tuple[int, ...]]:
    return [query.shape, key.shape, value.shape]


_ATTENTION = primitives.primitive("attention", _attended, primitives.Loop(ATTENTION, how_of_attention, _shapes))
_ATTENTION_GRAD = primitives.primitive("attention_grad", _attended_back, primitives.Loop(ATTENTION, how_of_attention, _shapes_back))


def _has_loop(query: Any, key: Any, value: Any, *others: Any) -> bool:
    """Whether there is a loop of C's for them, and what else it is given, here."""
    return fits_loop(query, key, value) and all([x.dtype == np.float32 for x in others]) and primitives.has(ATTENTION)


def _gradients(
    grad0: Any, grad1: Any, query: Any, key: Any, value: Any, weights: Any, dropout_mask: Any, is_causal: bool, scale: float
) -> dict[str, Any]:  # fmt: skip
    if grad0 is not None and grad1 is None and _has_loop(query, key, value, grad0):
        found = _ATTENTION_GRAD.bind(grad0, query, key, value, weights, is_causal=bool(is_causal), scale=float(scale))
        return dict(zip(("query", "key", "value"), found, strict=True))
    grad0, grad1 = jnp.zeros_like(query) if grad0 is None else grad0, 0 if grad1 is None else grad1
    return {
        "query": _query_grad(grad0, query, key, value, weights, dropout_mask, scale, grad1),
        "key": _key_grad(grad0, query, key, value, weights, dropout_mask, scale, grad1),
        "value": _value_grad(grad0, value, weights, dropout_mask),
    }


_FORMULAS = {
    "query": _query_grad, "key": _key_grad, "value": _value_grad,
    "attn_mask": lambda grad0, query, value, weights, dropout_mask, grad1: _scores_grad(grad0, query, value, weights, dropout_mask, grad1),
}  # fmt: skip


def _floating(query: Any, key: Any, value: Any, attn_mask: Any, *others: Any, **statics: Any) -> None:
    refusing("softmax_lastdim_kernel_impl", "c")(query)
    if dtypes.category(query.dtype) == dtypes.FLOAT:
        return
    found = dtypes.of(query.dtype)
    if attn_mask is not None and attn_mask.dtype == np.bool_ != query.dtype:
        fitting(-math.inf, query.dtype)  # what a mask is made of
    if query.ndim == 2:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: float != {found.word}")
    raise RuntimeError(f"expected scalar type Float but found {found.title}")


@op("_safe_softmax(Tensor self, int dim)", method=False, toplevel=False, validate=refusing("softmax_lastdim_kernel_impl", "c"),
    grads={"self": softmax_grad_along}, numpy=numpy_rows.along(loops.SAFE_SOFTMAX, last=True),
    numpy_vjp=numpy_rows.along_vjp(loops.SOFTMAX_GRAD))  # fmt: skip
def safe_softmax(x: Any, dim: int) -> Any:
    """The softmax over the last dimension; 0 in a row that is masked altogether."""
    return _weights(x, True)


# PyTorch has a kernel of its own for four dimensions, and composes the others of matrix products.
for _name, _node in (
    ("attention_fused", "ScaledDotProductFlashAttentionForCpuBackward0"), ("attention_batched", "UnsafeViewBackward0"),
    ("attention_single", "MmBackward0"), ("attention_rounded", "ToCopyBackward0"), ("attention_empty", "AddBackward0"),
):  # fmt: skip

    @op(f"{_name}(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor? dropout_mask, bool is_causal, float scale)", method=False,
        toplevel=False, node=_node, edges=("query", "key", "value") if _name == "attention_fused" else None,
        results=("output", "weights"), keeps=("output",) if _name == "attention_fused" else (),
        shows=("query", "key", "value") if _name == "attention_fused" else (), validate=_floating, numpy=numpy_attention.attention,
        numpy_grads=numpy_attention.gradients if _name == "attention_fused" else None,
        grads={name: Together(_gradients, name) for name in ("query", "key", "value")} if _name == "attention_fused" else _FORMULAS)  # fmt: skip
    def attention(query: Any, key: Any, value: Any, attn_mask: Any, dropout_mask: Any, is_causal: bool, scale: float) -> Any:
        """softmax(query @ key.T * scale) @ value, and the weights."""
        if dropout_mask is None and _has_loop(query, key, value):
            mask = () if attn_mask is None else (_added(attn_mask),)
            return tuple(_ATTENTION.bind(query, key, value, *mask, is_causal=bool(is_causal), scale=float(scale)))
        weights = _weights(_scores(query, key, attn_mask, is_causal, scale), attn_mask is not None)
        return _output(weights, query, value, dropout_mask).astype(query.dtype), weights
