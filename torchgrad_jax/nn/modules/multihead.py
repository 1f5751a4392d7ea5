"""MultiheadAttention (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.nn.functional as F
import torchgrad_jax.nn.init as init
from torchgrad_jax.autograd.autocast_mode import is_autocast_enabled
from torchgrad_jax.autograd.grad_mode import is_grad_enabled
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.linear import NonDynamicallyQuantizableLinear
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.parameter import empty

__all__ = ["MultiheadAttention"]


def asks_no_gradient(module: Module, *inputs: Tensor) -> bool:
    """Whether PyTorch computes a module of the Transformer family by its inference kernels, as far as modes and gradients decide that."""
    if module.training or is_autocast_enabled(inputs[0].device.type):
        return False
    return not (is_grad_enabled() and any(t.requires_grad for t in (*inputs, *module.parameters())))


class MultiheadAttention(Module):
    """Attention of `num_heads` heads, each on its part of the features, between linear maps: see `F.multi_head_attention_forward`.

    embed_dim: the features of queries and results. dropout: of attention weights, in training. bias: of the linear maps. add_bias_kv: one more key
    and value, which are learned; add_zero_attn: one more of zeros. kdim, vdim: features of keys and values where they differ. batch_first: inputs are
    (batch, positions, features), not (positions, batch, features).

    in_proj_weight: (3 embed_dim, embed_dim), or q_proj_weight, k_proj_weight, v_proj_weight where kdim or vdim are others; in_proj_bias: (3
    embed_dim,); bias_k, bias_v: (1, 1, embed_dim); out_proj: a Linear.

    ValueError, AssertionError where embed_dim cannot be divided among the heads.
    """

    __module__ = "torchgrad_jax.nn.modules.activation"  # where users find it

    __constants__ = ["batch_first"]
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False, add_zero_attn: bool = False,
        kdim: int | None = None, vdim: int | None = None, batch_first: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} instead")
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != self.embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def made(*size: int) -> Parameter:
            return Parameter(empty(size, device=device, dtype=dtype))

        together = {"in_proj_weight": (3 * embed_dim, embed_dim)}
        apart = {"q_proj_weight": (embed_dim, embed_dim), "k_proj_weight": (embed_dim, self.kdim), "v_proj_weight": (embed_dim, self.vdim)}
        here, none = (together, apart) if self._qkv_same_embed_dim else (apart, together)
        for name, size in here.items():
            self.register_parameter(name, made(*size))
        for name in none:
            self.register_parameter(name, None)
        self.register_parameter("in_proj_bias", made(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.bias_k, self.bias_v = (made(1, 1, embed_dim), made(1, 1, embed_dim)) if add_bias_kv else (None, None)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draw weights anew, but for those of `out_proj`, whose bias becomes zero."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """(L, N, embed_dim), (S, N, kdim) and (S, N, vdim), or all without N, to (L, N, embed_dim); with `batch_first` the batch comes first.

        key_padding_mask: (N, S); attn_mask: (L, S) or (N * num_heads, L, S): true where a key is not seen, or numbers to add to the scores. is_causal
        says that attn_mask is the causal one. Beside the result: with need_weights the weights (N, L, S), the mean over the heads, or those of each
        head, (N, num_heads, L, S); else None. AssertionError, RuntimeError where shapes or dtypes do not fit.
        """
        turned = self.batch_first and query.dim() == 3
        inference = self._layer_takes_kernel(query, key, value)
        # The kernel knows no causal attention without a mask, and gives NaN to queries that see no key.
        whole = need_weights or (inference and (attn_mask is not None or key_padding_mask is not None))
        causal = is_causal and not inference
        if turned:
            query, key, value = _batch_second(query, key, value)
        made, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v, self.add_zero_attn,
            self.dropout, self.out_proj.weight, self.out_proj.bias, training=self.training, key_padding_mask=key_padding_mask,
            need_weights=whole, attn_mask=attn_mask, use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights, is_causal=causal,
        )  # fmt: skip
        return made.transpose(1, 0) if turned else made, weights if need_weights else None

    def _layer_takes_kernel(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Whether PyTorch computes this by its inference kernel."""
        return (
            query is key is value
            and self.batch_first
            and query.dim() == 3
            and self._qkv_same_embed_dim
            and self.in_proj_bias is not None
            and self.bias_k is None
            and not self.add_zero_attn
            and self.num_heads % 2 == 0
            and asks_no_gradient(self, query)
        )

    def merge_masks(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor) -> tuple[Tensor | None, int | None]:
        """One mask of two for queries (N, L, embed_dim), and its kind: 1 for the mask of padding as it was given, 2 for one of
        (N, num_heads, L, L), None for none."""
        if attn_mask is None:
            return (None, None) if key_padding_mask is None else (key_padding_mask, 1)
        batch, positions = query.shape[:2]
        if attn_mask.dim() == 3:
            merged = attn_mask.view(batch, -1, positions, positions)
        else:
            merged = attn_mask.view(1, 1, positions, positions).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, positions).expand(-1, self.num_heads, -1, -1)
        return merged, 2


def _batch_second(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three with their first dimensions swapped; what was one tensor still is."""
    turned = key.transpose(1, 0)
    return turned if query is key else query.transpose(1, 0), turned, turned if key is value else value.transpose(1, 0)
