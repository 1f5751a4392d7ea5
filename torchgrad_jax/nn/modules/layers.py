"""Convolutions and normalizations."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.nn.functional as F
import torchgrad_jax.nn.init as init
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import empty, ones, tensor, zeros
from torchgrad_jax.nn.modules.linear import spread_like_linear
from torchgrad_jax.nn.modules.module import Module

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "LayerNorm"]

_PADDINGS = ("valid", "same")
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(Module):
    """What the convolutions share. weight: (out_channels, in_channels / groups, *kernel_size). ValueError where the arguments do not fit."""

    dims: int
    convolve: Any

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride, self.dilation = self._each(kernel_size), self._each(stride), self._each(dilation)
        self.padding = padding if isinstance(padding, str) else self._each(padding)
        self.in_channels, self.out_channels, self.groups, self.padding_mode = in_channels, out_channels, groups, padding_mode
        self._check()
        self.weight = Parameter(empty((out_channels, in_channels // groups, *self.kernel_size), device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def _each(self, x: Any) -> tuple[int, ...]:
        return tuple(x) if isinstance(x, (tuple, list)) else (x,) * self.dims

    def _check(self) -> None:
        if self.groups <= 0:
            raise ValueError("groups must be a positive integer")
        for channels, name in ((self.in_channels, "in_channels"), (self.out_channels, "out_channels")):
            if channels % self.groups:
                raise ValueError(f"{name} must be divisible by groups")
        if isinstance(self.padding, str):
            if self.padding not in _PADDINGS:
                raise ValueError(f"Invalid padding string {self.padding!r}, should be one of {{'valid', 'same'}}")
            if self.padding == "same" and any(s != 1 for s in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if self.padding_mode not in _PADDING_MODES:
            raise ValueError(f"padding_mode must be one of {set(_PADDING_MODES)}, but got padding_mode='{self.padding_mode}'")

    def reset_parameters(self) -> None:
        """Draw weights anew."""
        spread_like_linear(self.weight, self.bias)

    def _amounts(self) -> list[int]:
        """What `F.pad` is given: before and after each dimension, the last one first."""
        found: list[int] = []
        for i in reversed(range(self.dims)):
            if isinstance(self.padding, str):
                total = self.dilation[i] * (self.kernel_size[i] - 1) if self.padding == "same" else 0
                found += [total // 2, total - total // 2]
            else:
                found += [self.padding[i], self.padding[i]]
        return found

    def forward(self, input: Tensor) -> Tensor:
        """(N, in_channels, *) or (in_channels, *) to the same with out_channels."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._amounts(), mode=self.padding_mode), 0
        return type(self).convolve(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        """See Module."""
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        for name, default in (("padding", (0,) * self.dims), ("dilation", (1,) * self.dims), ("groups", 1)):
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class Conv1d(_Conv):
    """Convolution of (N, C, L)."""

    dims, convolve = 1, F.conv1d


class Conv2d(_Conv):
    """Convolution of (N, C, H, W)."""

    dims, convolve = 2, F.conv2d


class Conv3d(_Conv):
    """Convolution of (N, C, D, H, W)."""

    dims, convolve = 3, F.conv3d


class LayerNorm(Module):
    """The last dimensions, of sizes normalized_shape, brought to mean 0 and variance 1, then scaled and shifted."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            self.register_parameter(name, Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale by one, shift by zero."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """(*, *normalized_shape) to the same."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """See Module."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"


class _BatchNorm(Module):
    """Each channel brought to mean 0 and variance 1 by the batch's statistics, or by the running ones outside training. momentum: how much of the
    batch's go into the running ones; None for the mean of all batches."""

    _version = 2
    expected: tuple[int, ...]
    words: str

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, Parameter(empty(num_features, device=device, dtype=dtype)) if wanted else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("num_batches_tracked", tensor(0, dtype=dtypes.int64, device=device) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the batches seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Forget the batches seen; scale by one, shift by zero."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """(N, num_features, *) to the same. ValueError for another number of dimensions."""
        if input.dim() not in self.expected:
            raise ValueError(f"expected {self.words} input (got {input.dim()}D input)")
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        training = self.training or (self.running_mean is None and self.running_var is None)
        use = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if use else (None, None)
        return F.batch_norm(input, mean, var, self.weight, self.bias, training, momentum, self.eps)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any) -> None:
        """See Module. States of before version 2 do not count batches."""
        key = prefix + "num_batches_tracked"
        if local_metadata.get("version", 1) < 2 and self.track_running_stats and key not in state_dict:
            state_dict[key] = self.num_batches_tracked if self.num_batches_tracked is not None else tensor(0)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        """See Module."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalization of (N, C) or (N, C, L)."""

    expected, words = (2, 3), "2D or 3D"


class BatchNorm2d(_BatchNorm):
    """Batch normalization of (N, C, H, W)."""

    expected, words = (4,), "4D"


class BatchNorm3d(_BatchNorm):
    """Batch normalization of (N, C, D, H, W)."""

    expected, words = (5,), "5D"
