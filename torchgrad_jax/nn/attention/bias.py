"""`torch.nn.attention.bias`: causal masks that `scaled_dot_product_attention` knows for what they are."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.made import created
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import empty, from_data
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Which corners the triangle of keys that are seen has: UPPER_LEFT where the first query sees the first key alone, LOWER_RIGHT where the last
    query sees all keys, and each query before it one less."""

    UPPER_LEFT = enum.auto()
    LOWER_RIGHT = enum.auto()


class CausalBias(Tensor):
    """A causal mask for `scaled_dot_product_attention`, made where it is needed. Other functions cannot be called with it."""

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant)}")
        return Tensor._make_subclass(cls, empty((int(variant), seq_len_q, seq_len_kv)))

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            warn_user("Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!")

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask (seq_len_q, seq_len_kv), true where a key is seen."""
        shift = self.seq_len_kv - self.seq_len_q if self.variant == CausalVariant.LOWER_RIGHT else 0
        return created(from_data(np.tri(self.seq_len_q, self.seq_len_kv, shift, dtype=bool), None, device))

    @staticmethod
    def _dispatch(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: CausalBias, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        """`F.scaled_dot_product_attention` with this mask. ValueError for is_causal=True."""
        if is_causal:
            raise ValueError("CausalBias should not be used with causal=True")
        known = attn_mask.seq_len_q == attn_mask.seq_len_kv or attn_mask.variant == CausalVariant.UPPER_LEFT
        mask = None if known else attn_mask._materialize(query.device)
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, known, scale=scale, enable_gqa=enable_gqa)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answers `F.scaled_dot_product_attention`."""
        if func is F.scaled_dot_product_attention:
            return cls._dispatch(*args, **(kwargs or {}))
        default: Any = super()
        return default.__torch_function__(func, types, args, kwargs)

    def __repr__(self) -> str:  # type: ignore[override] - that of the mask
        return repr(self._materialize())


def causal_upper_left(*size: int) -> CausalBias:
    """The mask of queries and keys that begin together. AssertionError for other than two sizes."""
    return _of_size("causal_upper_left", CausalVariant.UPPER_LEFT, size)


def causal_lower_right(*size: int) -> CausalBias:
    """The mask of queries and keys that end together. AssertionError for other than two sizes."""
    return _of_size("causal_lower_right", CausalVariant.LOWER_RIGHT, size)


def _of_size(name: str, variant: CausalVariant, size: tuple[int, ...]) -> CausalBias:
    if len(size) != 2:
        raise AssertionError(f"{name} only supports 2D tensors")
    return CausalBias(variant, size[0], size[1])
