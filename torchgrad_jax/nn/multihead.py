"""`torch.nn.functional.multi_head_attention_forward` (Vaswani et al. 2017), composed of the operators that PyTorch composes it of."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.shaping import cat, repeat
from torchgrad_jax.functions.views import chunk, contiguous, expand, permute, reshape, split, squeeze, transpose, unsqueeze, view
from torchgrad_jax.lifting.compositions import composition
from torchgrad_jax.nn.activation import softmax
from torchgrad_jax.nn.dot_product import scaled_dot_product_attention
from torchgrad_jax.nn.dropout import dropout
from torchgrad_jax.nn.linear import linear
from torchgrad_jax.nn.padding import pad
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["multi_head_attention_forward"]


@composition
def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None, in_proj_bias: Tensor | None,
    bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor, out_proj_bias: Tensor | None,
    training: bool = True, key_padding_mask: Tensor | None = None, need_weights: bool = True, attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None, static_k: Tensor | None = None, static_v: Tensor | None = None, average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Attention of `num_heads` heads, each on its part of the features: (L, N, E) for queries (L, N, E), keys and values (S, N, E); without N too.

    `in_proj_weight` (3 E, E) holds the projections of queries, keys and values, unless they are given one by one (`use_separate_proj_weight`).
    `bias_k`, `bias_v` (1, 1, E) and, with `add_zero_attn`, zeros are further keys and values; `static_k`, `static_v` (N * heads, S, E / heads)
    stand in place of the projected ones. `key_padding_mask` (N, S) and `attn_mask` (L, S) or (N * heads, L, S) are true where a key is not seen, or
    are added to the scores. `is_causal` says that `attn_mask` is the causal one. In training, weights are dropped with probability `dropout_p`.

    Beside the result: with `need_weights` the weights (N, L, S), the mean over the heads, or of each head (N, heads, L, S); else None.

    AssertionError, RuntimeError where shapes or dtypes do not fit.
    """
    batched = _check_dimensions(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = (unsqueeze(x, 1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else unsqueeze(key_padding_mask, 0)
    size = _Sizes(query._aval.shape[0], query._aval.shape[1], query._aval.shape[2], int(num_heads))
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method `generate_square_subsequent_mask` to "
            "create this mask."
        )
    is_causal = is_causal and key_padding_mask is None and not need_weights
    padding, mask = _float_masks(key_padding_mask, attn_mask, query)
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _projected(query, key, value, in_proj_weight, in_proj_bias, separate)
    mask = _shaped_mask(mask, size, key._aval.shape[0])
    q, k, v, added = _by_head(size, q, k, v, bias_k, bias_v, static_k, static_v, add_zero_attn)
    if added:
        mask, padding = (None if m is None else pad(m, (0, added)) for m in (mask, padding))
    mask = _merged(mask, padding, size, k._aval.shape[1])
    p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        weights = _weights(q, k, mask, p)
        seen = transpose(call("bmm", weights, v), 0, 1)
        weights = reshape(weights, (size.batch, size.heads, size.queries, k._aval.shape[1]))
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        seen = _fused(q, k, v, None if is_causal else mask, size, p, is_causal)
    rows = reshape(seen, (size.queries * size.batch, size.features))
    made = linear(rows, out_proj_weight, out_proj_bias)
    made = view(made, (size.queries, size.batch, made._aval.shape[1]))
    if batched:
        return made, weights
    return squeeze(made, 1), None if weights is None else squeeze(weights, 0)


class _Sizes(NamedTuple):
    queries: int
    batch: int
    features: int
    heads: int


# ---------------------------------------------------------------------- what fits


def _check_dimensions(query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int) -> bool:
    """Whether there is a batch dimension. AssertionError where the numbers of dimensions do not agree."""
    dims = query.dim()
    assert dims in (2, 3), f"query should be unbatched 2D or batched 3D tensor but received {dims}-D query tensor"
    kind = "batched (3-D)" if dims == 3 else "unbatched (2-D)"
    assert key.dim() == value.dim() == dims, (
        f"For {kind} `query`, expected `key` and `value` to be {dims}-D but found {key.dim()}-D and {value.dim()}-D tensors respectively"
    )
    if padding is not None:
        assert padding.dim() == dims - 1, (
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {dims - 1}-D but found {padding.dim()}-D tensor instead"
        )
    if mask is not None:
        assert mask.dim() in (2, 3), f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {mask.dim()}-D tensor instead"
        if dims == 2 and mask.dim() == 3:
            wanted = (heads, query._aval.shape[0], key._aval.shape[0])
            assert mask._aval.shape == wanted, f"Expected `attn_mask` shape to be {wanted} but got {mask.size()}"
    return dims == 3


def _check_sizes(query: Tensor, key: Tensor, value: Tensor, expected: Any, heads: int, separate: bool) -> None:
    features = query._aval.shape[-1]
    assert features == expected, f"was expecting embedding dimension of {expected}, but got {features}"
    assert features // heads * heads == features, f"embed_dim {features} not divisible by num_heads {heads}"
    if separate:
        assert key._aval.shape[:2] == value._aval.shape[:2], f"key's sequence and batch dims {key.size()[:2]} do not match value's {value.size()[:2]}"
    else:
        assert key._aval.shape == value._aval.shape, f"key shape {key.size()} does not match value shape {value.size()}"


# ---------------------------------------------------------------------- masks


def _float_masks(padding: Tensor | None, mask: Tensor | None, query: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Both masks as numbers to be added to the scores."""
    for name, m in (("key_padding_mask", padding), ("attn_mask", mask)):
        assert m is None or m._aval.dtype == np.bool_ or dtypes.category(m._aval.dtype) == dtypes.FLOAT, (
            f"only bool and floating types of {name} are supported"
        )
    if padding is not None and mask is not None and padding._aval.dtype != mask._aval.dtype:
        warn_user("Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both instead.", UserWarning)
    return _added(padding, query), _added(mask, query)


def _added(mask: Tensor | None, like: Tensor) -> Tensor | None:
    if mask is None or mask._aval.dtype != np.bool_:
        return mask
    return like.new_zeros(mask._aval.shape).masked_fill_(mask, -math.inf)


def _shaped_mask(mask: Tensor | None, size: _Sizes, keys: int) -> Tensor | None:
    """The mask of the scores with a dimension for batch and heads, perhaps of size 1."""
    if mask is None:
        return None
    flat = mask._aval.ndim == 2
    wanted = (size.queries, keys) if flat else (size.batch * size.heads, size.queries, keys)
    if mask._aval.shape != wanted:
        raise RuntimeError(f"The shape of the {mask._aval.ndim}D attn_mask is {mask.size()}, but should be {wanted}.")
    return unsqueeze(mask, 0) if flat else mask


def _merged(mask: Tensor | None, padding: Tensor | None, size: _Sizes, keys: int) -> Tensor | None:
    """One mask of both."""
    if padding is None:
        return mask
    wanted, given = (size.batch, keys), padding._aval.shape
    assert given[0] == wanted[0], f"Expected key_padded_mask.shape[0] to be {wanted[0]}, but got {given[0]}"
    assert given[1] == wanted[1], f"Expected key_padded_mask.shape[1] to be {wanted[1]}, but got {given[1]}"
    of_heads = expand(view(padding, (size.batch, 1, 1, keys)), (-1, size.heads, -1, -1))
    of_heads = reshape(of_heads, (size.batch * size.heads, 1, keys))
    return of_heads if mask is None else mask + of_heads


# ---------------------------------------------------------------------- queries, keys and values


def _projected(
    query: Tensor, key: Tensor, value: Tensor, packed: Tensor | None, bias: Tensor | None, separate: tuple[Tensor | None, ...] | None
) -> list[Tensor]:
    """Queries, keys and values by their linear maps; in one product what is made of the same tensor."""
    given = (query, key, value)
    if separate is None:
        assert packed is not None, "use_separate_proj_weight is False but in_proj_weight is None"
        features = query._aval.shape[-1]
        if query is key and key is value:
            return _together(query, packed, bias, 3, features)
        if key is value:
            sizes = [features, 2 * features]
            (w, of_both), (b, added) = split(packed, sizes), (None, None) if bias is None else split(bias, sizes)
            return [linear(query, w, b), *_together(key, of_both, added, 2, features)]
        weights: Any = chunk(packed, 3, 0)
    else:
        features = query._aval.shape[-1]
        for short, name, weight, x in zip("qkv", ("query", "key", "value"), separate, given, strict=True):
            assert weight is not None, f"use_separate_proj_weight is True but {short}_proj_weight is None"
            wanted = (features, x._aval.shape[-1])
            assert weight._aval.shape == wanted, f"expecting {name} weights shape of {wanted}, but got {weight.size()}"
        weights = separate
    biases: Any = (None,) * 3 if bias is None else chunk(bias, 3, 0)
    return [linear(x, w, b) for x, w, b in zip(given, weights, biases, strict=True)]


def _together(x: Tensor, weights: Tensor, biases: Tensor | None, count: int, features: int) -> list[Tensor]:
    """Several linear maps of one tensor."""
    made: Any = linear(x, weights, biases)
    made = made.unflatten(-1, (count, features)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()
    return [made[i] for i in range(count)]


def _by_head(
    size: _Sizes, q: Tensor, k: Tensor, v: Tensor, bias_k: Tensor | None, bias_v: Tensor | None, static_k: Tensor | None,
    static_v: Tensor | None, add_zero_attn: bool,
) -> tuple[Tensor, Tensor, Tensor, int]:  # fmt: skip
    """Queries, keys and values as (N * heads, positions, features of a head), and how many keys were added."""
    rows, per_head = size.batch * size.heads, size.features // size.heads
    added = 0
    if bias_k is not None and bias_v is not None:
        assert static_k is None, "bias cannot be added to static key."
        assert static_v is None, "bias cannot be added to static value."
        k, v = (cat([x, repeat(b, 1, size.batch, 1)]) for x, b in ((k, bias_k), (v, bias_v)))
        added = 1
    else:
        assert bias_k is None, "bias_k is set but bias_v is None"
        assert bias_v is None, "bias_v is set but bias_k is None"
    made = [_split(q, rows, per_head)]
    for name, x, fixed in (("static_k", k, static_k), ("static_v", v, static_v)):
        if fixed is None:
            made.append(_split(x, rows, per_head))
            continue
        for dim, wanted in ((0, rows), (2, per_head)):
            found = fixed._aval.shape[dim]
            assert found == wanted, f"expecting {name}.size({dim}) of {wanted}, but got {found}"
        made.append(fixed)
    if add_zero_attn:
        made[1:] = [cat([x, x.new_zeros((rows, 1, per_head))], 1) for x in made[1:]]
        added += 1
    return made[0], made[1], made[2], added


def _split(x: Tensor, rows: int, per_head: int) -> Tensor:
    return transpose(view(contiguous(x), (x._aval.shape[0], rows, per_head)), 0, 1)


# ---------------------------------------------------------------------- attention


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, p: float) -> Tensor:
    scaled: Any = q * math.sqrt(1.0 / q._aval.shape[-1])
    turned = transpose(k, -2, -1)
    scores = call("bmm", scaled, turned) if mask is None else call("baddbmm", mask, scaled, turned, 1, 1)
    weights = softmax(scores, -1)
    return dropout(weights, p) if p > 0.0 else weights


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, size: _Sizes, p: float, is_causal: bool) -> Tensor:
    """The result as (L, N, heads, features of a head), without the weights."""
    queries, keys = size.queries, k._aval.shape[1]
    if mask is not None:
        whole = mask._aval.shape[0] == 1
        mask = unsqueeze(mask, 0) if whole else view(mask, (size.batch, size.heads, mask._aval.shape[1], keys))
    q4, k4, v4 = (view(x, (size.batch, size.heads, n, x._aval.shape[-1])) for x, n in ((q, queries), (k, keys), (v, v._aval.shape[1])))
    return permute(scaled_dot_product_attention(q4, k4, v4, mask, p, is_causal), 2, 0, 1, 3)
