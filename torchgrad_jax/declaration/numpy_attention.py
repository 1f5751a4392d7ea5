"""Attention: its form on NumPy arrays. See `numpy_forms.py`. As those of rows (`numpy_rows.py`), it stands for a plan, bit for bit."""

from __future__ import annotations

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.attention import Attention, cost_of, fits_loop, how_of_attention
from torchgrad_jax.runtime.compiling.foreign import ATTENTION, knows
from torchgrad_jax.runtime.operation import stand_in

_FLOAT = np.dtype(np.float32)


def _added(mask: Array) -> Array:
    """A mask as what is added to the scores, of four dimensions."""
    added = np.where(mask, np.float32(0), np.float32(-np.inf)) if mask.dtype == np.bool_ else mask
    return added.reshape((1,) * (4 - mask.ndim) + mask.shape)


def _attended(
    query: Array, key: Array, value: Array, attn_mask: Array | None, dropout_mask: None, is_causal: bool, scale: float
) -> tuple[Array, Array]:
    mask = () if attn_mask is None else (_added(attn_mask),)
    how = how_of_attention(query, key, value, *mask, is_causal=bool(is_causal), scale=float(scale))
    made, weights = Attention(how, (*query.shape[:3], key.shape[2]))(query, key, value, *mask)
    return made, weights


def _results(
    query: Array, key: Array, value: Array, attn_mask: Array | None, dropout_mask: Array | None, is_causal: bool, scale: float
) -> tuple[Array, Array] | None:
    if dropout_mask is not None or not fits_loop(query, key, value) or not knows(ATTENTION):
        return None
    if attn_mask is not None and (attn_mask.ndim > 4 or attn_mask.dtype not in (np.bool_, _FLOAT)):
        return None
    return query, stand_in((*query.shape[:3], key.shape[2]), _FLOAT)


attention = Forms(_attended, _results, takes=lambda query, key, value, *masks: cost_of(query, key, value, results=2), planned=True)
