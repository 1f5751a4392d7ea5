"""Attention: its form on NumPy arrays. See `numpy_forms.py`. As those of rows (`numpy_rows.py`), it stands for a plan, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.declaration.numpy_forms import Array
from torchgrad_jax.declaration.vjp import ByName
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.attention import Attention, AttentionGrad, cost_of, fits_loop, how_of_attention
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


@cache
def _gradients(wanted: tuple[str, ...]) -> Forms:
    """The form of the gradients of the `wanted` ones of query, key and value: the loop makes all three."""
    places = [("query", "key", "value").index(name) if name in ("query", "key", "value") else -1 for name in wanted]

    def operands(grads: Sequence[Array | None], saved: dict[str, Array]) -> list[Any]:
        return [grads[0], *[saved[name] for name in ("query", "key", "value", "weights")]]

    def function(grads: Sequence[Array | None], avals: Any, saved: dict[str, Array], is_causal: bool, scale: float) -> Any:
        given = operands(grads, saved)
        found = AttentionGrad(how_of_attention(*given, is_causal=bool(is_causal), scale=float(scale)))(*given)
        return found[places[0]] if len(places) == 1 else tuple([found[place] for place in places])

    def result(grads: Sequence[Array | None], avals: Sequence[Any], saved: dict[str, Array], is_causal: bool, scale: float) -> Any:
        grad, of_weights = grads
        if grad is None or grad.dtype != _FLOAT or of_weights is not None or saved.get("dropout_mask") is not None or -1 in places:
            return None
        if "weights" not in saved or not fits_loop(*operands(grads, saved)[1:4]) or not knows(ATTENTION):
            return None
        made = [stand_in(aval.shape, _FLOAT) for aval in avals]
        return made[0] if len(made) == 1 else tuple(made)

    return Forms(function, result, takes=lambda grads, saved: cost_of(*operands(grads, saved), results=3), planned=True)


gradients = ByName(_gradients)
