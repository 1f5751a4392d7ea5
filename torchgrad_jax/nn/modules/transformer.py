"""The Transformer (Vaswani et al. 2017): encoder, decoder and their layers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import torchgrad_jax.nn.functional as F
import torchgrad_jax.nn.init as init
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import arange, full
from torchgrad_jax.nn.inference import EncoderLayer, at_once, tensors_of
from torchgrad_jax.nn.modules.activation import GELU, MultiheadAttention, ReLU
from torchgrad_jax.nn.modules.calling import has_hooks
from torchgrad_jax.nn.modules.container import ModuleList
from torchgrad_jax.nn.modules.dropout import Dropout
from torchgrad_jax.nn.modules.linear import Linear, NonDynamicallyQuantizableLinear
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.modules.multihead import asks_no_gradient
from torchgrad_jax.nn.modules.normalization import LayerNorm
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer"]

Activation = str | Callable[[Tensor], Tensor]


# ---------------------------------------------------------------------- what encoder and decoder share


class _Layer(Module):
    """Attention, then two linear maps with an activation between; each has dropout, the input added, and is normalized after that or (norm_first)
    before it."""

    __constants__ = ["norm_first"]
    activation: Callable[[Tensor], Tensor]

    def _layer_make(
        self, attentions: tuple[str, ...], d_model: int, nhead: int, dim_feedforward: int, dropout: float, activation: Activation,
        layer_norm_eps: float, batch_first: bool, norm_first: bool, bias: bool, factory: dict[str, Any],
    ) -> None:  # fmt: skip
        """Give it its members, in the order in which PyTorch draws their weights."""
        for name in attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **factory))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **factory)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **factory)
        self.norm_first = norm_first
        parts = range(1, len(attentions) + 2)
        for i in parts:
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory))
        for i in parts:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _get_activation_fn(activation) if isinstance(activation, str) else activation

    def _layer_attended(self, attention: Module, dropout: Module, x: Tensor, to: Tensor, *masks: Any) -> Tensor:
        """What attention of `x` to `to` adds. masks: attn_mask, key_padding_mask, is_causal."""
        mask, padding, is_causal = masks
        return dropout(attention(x, to, to, attn_mask=mask, key_padding_mask=padding, is_causal=is_causal, need_weights=False)[0])

    def _layer_fed_forward(self, dropout: Module, x: Tensor) -> Tensor:
        return dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return F.relu if activation == "relu" else F.gelu


def _added(mask: Tensor | None, name: str, like: Tensor, other: Tensor | None = None, other_name: str = "") -> Tensor | None:
    """A mask as numbers to be added to scores. AssertionError for other types; a warning where that of the other mask differs."""
    if mask is None:
        return None
    boolean = mask._aval.dtype == np.bool_
    if not boolean and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if other is not None and mask.dtype != other.dtype:
        warn_user(f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both instead.", UserWarning)
    return like.new_zeros(mask.shape).masked_fill_(mask, -math.inf) if boolean else mask


class _Stack(Module):
    """`num_layers` copies of a layer, one after the other, then `norm` if there is one."""

    __constants__ = ["norm"]

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm


# ---------------------------------------------------------------------- encoder


class TransformerEncoderLayer(_Layer):
    """Self-attention, and two linear maps. d_model: features; nhead: heads; dim_feedforward: features between the maps; activation: "relu", "gelu" or
    a function. batch_first: inputs are (N, S, d_model), not (S, N, d_model). norm_first: normalize before each part, not after it."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._layer_make(
            ("self_attn",), d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
            {"device": device, "dtype": dtype},
        )  # fmt: skip
        given = self.activation
        self.activation_relu_or_gelu = 1 if given is F.relu or isinstance(given, ReLU) else 2 if given is F.gelu or isinstance(given, GELU) else 0

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:  # fmt: skip
        """(S, N, d_model), or the other order, or without N, to the same. The masks are those of MultiheadAttention."""
        padding = _added(src_key_padding_mask, "src_key_padding_mask", src, src_mask, "src_mask")
        mask = _added(src_mask, "src_mask", src)
        if self._layer_takes_kernel(src):
            mask, padding = _blocking(mask), _blocking(padding)
            if _is_as_made(self):
                heads, gelu = self.self_attn.num_heads, self.activation_relu_or_gelu == 2
                how = EncoderLayer(heads, self.norm_first, gelu, self.norm1.eps, mask is not None, padding is not None)
                return at_once("_transformer_encoder_layer_fwd", how, [t for t in (src, *tensors_of(self), mask, padding) if t is not None])
        if self.norm_first:
            x = src + self._sa_block(self.norm1(src), mask, padding, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(src + self._sa_block(src, mask, padding, is_causal))
        return self.norm2(x + self._ff_block(x))

    def _layer_takes_kernel(self, src: Tensor) -> bool:
        """Whether PyTorch computes this by its inference kernel."""
        return src.dim() == 3 and not any(_obstacles(self).values()) and asks_no_gradient(self, src)

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False) -> Tensor:
        return self._layer_attended(self.self_attn, self.dropout1, x, x, attn_mask, key_padding_mask, is_causal)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self._layer_fed_forward(self.dropout2, x)


def _is_as_made(layer: Any) -> bool:
    """Whether an encoder layer is made of the modules that it was given first, with all that they have, and none of them has hooks."""
    attention = layer.self_attn
    parts = (attention, attention.out_proj, layer.norm1, layer.norm2, layer.linear1, layer.linear2)
    return (
        type(layer) is TransformerEncoderLayer
        and tuple(map(type, parts)) == _PARTS
        and attention._qkv_same_embed_dim
        and attention.bias_k is None
        and not attention.add_zero_attn
        and not any([has_hooks(part) or "forward" in vars(part) for part in (layer, *parts, layer.dropout, layer.dropout1, layer.dropout2)])
        and None not in tensors_of(layer)
    )


_PARTS = (MultiheadAttention, NonDynamicallyQuantizableLinear, LayerNorm, LayerNorm, Linear, Linear)


def _blocking(mask: Tensor | None) -> Tensor | None:
    """A mask as PyTorch's inference kernel for encoder layers takes it: any number but 0 hides a key."""
    return None if mask is None else mask.new_zeros(mask.shape).masked_fill(mask != 0, -math.inf)


def _obstacles(layer: Any) -> dict[str, bool]:
    """What keeps PyTorch from taking its inference kernel for an encoder layer, and whether it is so."""
    attention: Any = layer.self_attn
    return {
        "encoder_layer.self_attn.batch_first was not True(use batch_first for better inference performance)": not attention.batch_first,
        "encoder_layer.self_attn was passed bias=False": attention.in_proj_bias is None,
        "encoder_layer.activation_relu_or_gelu was not True": not layer.activation_relu_or_gelu,
        "encoder_layer.norm1.eps was not equal to encoder_layer.norm2.eps": layer.norm1.eps != layer.norm2.eps,
        "encoder_layer.self_attn.num_heads is odd": attention.num_heads % 2 == 1,
    }


class TransformerEncoder(_Stack):
    """`num_layers` copies of `encoder_layer`, one after the other, then `norm`.

    enable_nested_tensor: where nothing asks for gradients and the keys after the end of each sequence are masked, results after the end are zeros, as
    PyTorch's nested tensors give them. mask_check: whether it is asked that the masked keys are at the end.
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True, mask_check: bool = True
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor = self.use_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        obstacle = _obstacle(encoder_layer)
        if enable_nested_tensor and obstacle:
            warn_user(f"enable_nested_tensor is True, but self.use_nested_tensor is False because {obstacle}", UserWarning)
            self.use_nested_tensor = False

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None
    ) -> Tensor:  # fmt: skip
        """(S, N, d_model), or the other order, or without N, to the same. The masks are those of MultiheadAttention; is_causal says that `mask` is
        the causal one, which changes no result."""
        padding = _added(src_key_padding_mask, "src_key_padding_mask", src, mask, "mask")
        mask = _added(mask, "mask", src)
        after = None
        if padding is not None and mask is None and self.use_nested_tensor and src.dim() == 3 and asks_no_gradient(self, src):
            after = self._layer_after_the_end(padding != 0)
            padding = (padding if self.mask_check else src.new_zeros(after.shape)).masked_fill(after, -math.inf)
        made = src
        for layer in self.layers:
            made = layer(made, src_mask=mask, src_key_padding_mask=padding, is_causal=bool(is_causal))
        if after is not None:
            made = made.masked_fill(after.unsqueeze(2), 0.0)
        return made if self.norm is None else self.norm(made)

    def _layer_after_the_end(self, masked: Tensor) -> Tensor:
        """Which positions are masked, if all that are masked are after the end of a sequence; else none. Without mask_check as many at the end as are
        masked."""
        if self.mask_check:
            return masked & (masked[:, 1:] | ~masked[:, :-1]).all()
        return arange(masked.shape[1], device=masked.device) >= (~masked).sum(1, keepdim=True)


def _obstacle(layer: Any) -> str:
    """Why PyTorch makes no nested tensors for this layer; nothing where it does."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    conditions = {"encoder_layer.norm_first was True": layer.norm_first, **_obstacles(layer)}
    return next((words for words, holds in conditions.items() if holds), "")


# ---------------------------------------------------------------------- decoder


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to what an encoder gave (`memory`), and two linear maps. The arguments are those of TransformerEncoderLayer."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._layer_make(
            ("self_attn", "multihead_attn"), d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
            {"device": device, "dtype": dtype},
        )  # fmt: skip

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """(T, N, d_model) and memory (S, N, d_model), or the other order, or without N, to (T, N, d_model)."""
        own, others = (tgt_mask, tgt_key_padding_mask, tgt_is_causal), (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = tgt + self._sa_block(self.norm1(tgt), *own)
            x = x + self._mha_block(self.norm2(x), *others)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(tgt + self._sa_block(tgt, *own))
        x = self.norm2(x + self._mha_block(x, *others))
        return self.norm3(x + self._ff_block(x))

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False) -> Tensor:
        return self._layer_attended(self.self_attn, self.dropout1, x, x, attn_mask, key_padding_mask, is_causal)

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:  # fmt: skip
        return self._layer_attended(self.multihead_attn, self.dropout2, x, mem, attn_mask, key_padding_mask, is_causal)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self._layer_fed_forward(self.dropout3, x)


class TransformerDecoder(_Stack):
    """`num_layers` copies of `decoder_layer`, one after the other, then `norm`."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """(T, N, d_model) and memory (S, N, d_model), or the other order, or without N, to (T, N, d_model)."""
        made = tgt
        for layer in self.layers:
            made = layer(
                made, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=bool(tgt_is_causal), memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return made if self.norm is None else self.norm(made)


# ---------------------------------------------------------------------- both


class Transformer(Module):
    """Encoder and decoder. custom_encoder, custom_decoder: modules in their place; the other arguments are those of the layers."""

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6, dim_feedforward: int = 2048,
        dropout: float = 0.1, activation: Activation = F.relu, custom_encoder: Any = None, custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        of_layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*of_layer), num_encoder_layers, norm())
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*of_layer), num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        """Draw all matrices anew."""
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """(S, N, d_model) and (T, N, d_model), or the other order, or without N, to the latter. RuntimeError where sizes do not fit."""
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(batch) != tgt.size(batch):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask (sz, sz): -inf above the diagonal, else 0."""
        return full((sz, sz), -math.inf, dtype=dtype, device=device).triu(1)
