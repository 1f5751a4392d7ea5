"""Convolutions and transposed convolutions."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.lazy import LazyModuleMixin
from torchgrad_jax.nn.modules.linear import spread_like_linear
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.modules.utils import _ntuple, _reverse_repeat_tuple
from torchgrad_jax.nn.parameter import UninitializedParameter, empty

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
    "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
]  # fmt: skip

_PADDINGS = ("same", "valid")
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What the convolutions share. weight: (out_channels, in_channels / groups, *kernel_size), of the transposed ones with the first two exchanged
    and divided alike. ValueError where the arguments do not fit."""

    __constants__ = ["stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels", "out_channels", "kernel_size"]

    _spatial_dims: int

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: tuple[int, ...], stride: tuple[int, ...], padding: Any, dilation: tuple[int, ...],
        transposed: bool, output_padding: tuple[int, ...], groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        _check(in_channels, out_channels, stride, padding, groups, padding_mode)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.transposed, self.output_padding, self.groups, self.padding_mode = transposed, output_padding, groups, padding_mode
        self._reversed_padding_repeated_twice = _around(kernel_size, padding, dilation)
        made, read = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        self.weight = Parameter(empty((made, read // groups, *kernel_size), device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights anew."""
        spread_like_linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        """See Module."""
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        zeros, ones = (0,) * len(self.padding), (1,) * len(self.dilation)
        defaults = ("padding", zeros), ("dilation", ones), ("output_padding", (0,) * len(self.output_padding)), ("groups", 1)
        parts += [f"{name}={getattr(self, name)}" for name, default in defaults if getattr(self, name) != default]
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


def _check(in_channels: int, out_channels: int, stride: tuple[int, ...], padding: Any, groups: int, padding_mode: str) -> None:
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    for channels, name in ((in_channels, "in_channels"), (out_channels, "out_channels")):
        if channels % groups:
            raise ValueError(f"{name} must be divisible by groups")
    if isinstance(padding, str):
        if padding not in _PADDINGS:
            raise ValueError(f"Invalid padding string {padding!r}, should be one of {set(_PADDINGS)}")
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in _PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {set(_PADDING_MODES)}, but got padding_mode='{padding_mode}'")


def _around(kernel_size: tuple[int, ...], padding: Any, dilation: tuple[int, ...]) -> Any:
    """What `F.pad` is given: before and after each dimension, the last one first."""
    if not isinstance(padding, str):
        return _reverse_repeat_tuple(padding, 2)
    totals = [d * (k - 1) if padding == "same" else 0 for k, d in zip(kernel_size, dilation, strict=True)]
    return [side for total in reversed(totals) for side in (total // 2, total - total // 2)]


# ---------------------------------------------------------------------- convolutions


class _Conv(_ConvNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        each = _ntuple(self._spatial_dims)
        padding = padding if isinstance(padding, str) else each(padding)
        super().__init__(
            in_channels, out_channels, each(kernel_size), each(stride), padding, each(dilation), False, each(0), groups, bias, padding_mode,
            device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        """(N, in_channels, *) or (in_channels, *) to the same with out_channels."""
        return self._conv_forward(input, self.weight, self.bias)


# What is called is written out for each class, as in PyTorch: programs put functions of their own in the place of those of nn.functional, and call
# what is written here with objects of their own, which have a module's attributes but not its class.


def _padded(module: Any, input: Tensor) -> tuple[Tensor, Any]:
    """The input as the convolution reads it, and what is left to pad with zeros."""
    if module.padding_mode == "zeros":
        return input, module.padding
    return F.pad(input, module._reversed_padding_repeated_twice, mode=module.padding_mode), 0


class Conv1d(_Conv):
    """Convolution of (N, C, L) or (C, L)."""

    _spatial_dims = 1

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = _padded(self, input)
        return F.conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """Convolution of (N, C, H, W) or (C, H, W)."""

    _spatial_dims = 2

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = _padded(self, input)
        return F.conv2d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Conv):
    """Convolution of (N, C, D, H, W) or (C, D, H, W)."""

    _spatial_dims = 3

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        input, padding = _padded(self, input)
        return F.conv3d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


# ---------------------------------------------------------------------- transposed convolutions


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
        output_padding: Any, groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups, bias, padding_mode, device, dtype
        )

    def _output_padding(
        self, input: Tensor, output_size: Any, stride: Any, padding: Any, kernel_size: Any, num_spatial_dims: int, dilation: Any = None
    ) -> Any:
        """How much to add at the end of each dimension so that the result has the output size; that of the module for None. ValueError for a size
        that no amount leads to."""
        if output_size is None:
            return _ntuple(num_spatial_dims)(self.output_padding)
        leading = input.dim() - num_spatial_dims
        if len(output_size) == leading + num_spatial_dims:
            output_size = output_size[leading:]
        if len(output_size) != num_spatial_dims:
            raise ValueError(
                f"ConvTranspose{num_spatial_dims}D: for {input.dim()}D input, output_size must have {num_spatial_dims} or "
                f"{leading + num_spatial_dims} elements (got {len(output_size)})"
            )
        dilated = (1,) * num_spatial_dims if dilation is None else dilation
        sizes = zip(input.shape[leading:], stride, padding, kernel_size, dilated, strict=False)
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, k, d in sizes]
        most = [n + s - 1 for n, s in zip(least, stride, strict=False)]
        if any(n < low or n > high for n, low, high in zip(output_size, least, most, strict=True)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from {least} to {most} (for an input of {input.size()[2:]})"
            )
        return [n - low for n, low in zip(output_size, least, strict=True)]


class _ConvTranspose(_ConvTransposeNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
        bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        each = _ntuple(self._spatial_dims)
        super().__init__(
            in_channels, out_channels, each(kernel_size), each(stride), each(padding), each(dilation), True, each(output_padding), groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip


class ConvTranspose1d(_ConvTranspose):
    """The transpose of Conv1d in its input."""

    _spatial_dims = 1

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """(N, in_channels, *) or (in_channels, *) to the same with out_channels, of the spatial sizes `output_size` where several are possible.

        ValueError where none of them is that.
        """
        padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, 1, self.dilation)
        return F.conv_transpose1d(input, self.weight, self.bias, self.stride, self.padding, padding, self.groups, self.dilation)


class ConvTranspose2d(_ConvTranspose):
    """The transpose of Conv2d in its input."""

    _spatial_dims = 2

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """(N, in_channels, *) or (in_channels, *) to the same with out_channels, of the spatial sizes `output_size` where several are possible.

        ValueError where none of them is that.
        """
        padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, 2, self.dilation)
        return F.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding, padding, self.groups, self.dilation)


class ConvTranspose3d(_ConvTranspose):
    """The transpose of Conv3d in its input."""

    _spatial_dims = 3

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """(N, in_channels, *) or (in_channels, *) to the same with out_channels, of the spatial sizes `output_size` where several are possible.

        ValueError where none of them is that.
        """
        padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, 3, self.dilation)
        return F.conv_transpose3d(input, self.weight, self.bias, self.stride, self.padding, padding, self.groups, self.dilation)


# ---------------------------------------------------------------------- whose number of channels the first input tells


class _LazyConv(LazyModuleMixin):
    """A convolution whose in_channels are those of its first input."""

    _spatial_dims: int
    in_channels: int
    groups: int
    transposed: bool
    kernel_size: tuple[int, ...]
    weight: Any
    bias: Any

    def _lazy_put_uninitialized(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """See _ConvNd; nothing before the first call."""
        if not self.has_uninitialized_params() and self.in_channels:
            super().reset_parameters()  # type: ignore[misc] - the convolution's

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """See LazyModuleMixin. RuntimeError for another number of dimensions, ValueError where groups do not fit."""
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups:
            raise ValueError("in_channels must be divisible by groups")
        made, read = (self.in_channels, self.out_channels) if self.transposed else (self.out_channels, self.in_channels)
        self.weight.materialize((made, read // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_num_spatial_dims(self) -> int:
        return self._spatial_dims

    def _get_in_channels(self, input: Tensor) -> int:
        batched = self._get_num_spatial_dims() + 2
        if input.dim() not in (batched - 1, batched):
            raise RuntimeError(
                f"Expected {batched - 1}D (unbatched) or {batched}D (batched) input to {type(self).__name__}, but got input of size: {input.shape}"
            )
        return input.shape[1] if input.dim() == batched else input.shape[0]


class _LazyPlain(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._lazy_put_uninitialized(out_channels, bias, device, dtype)


class _LazyTransposed(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, bias: bool = True,
        dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype)
        self._lazy_put_uninitialized(out_channels, bias, device, dtype)


class LazyConv1d(_LazyPlain, Conv1d):  # type: ignore[misc] - it has no in_channels
    """Conv1d whose in_channels the first input tells."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyPlain, Conv2d):  # type: ignore[misc] - it has no in_channels
    """Conv2d whose in_channels the first input tells."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyPlain, Conv3d):  # type: ignore[misc] - it has no in_channels
    """Conv3d whose in_channels the first input tells."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):  # type: ignore[misc] - it has no in_channels
    """ConvTranspose1d whose in_channels the first input tells."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):  # type: ignore[misc] - it has no in_channels
    """ConvTranspose2d whose in_channels the first input tells."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):  # type: ignore[misc] - it has no in_channels
    """ConvTranspose3d whose in_channels the first input tells."""

    cls_to_become = ConvTranspose3d
