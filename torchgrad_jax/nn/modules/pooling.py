"""Pooling, and what it chose put back."""

from __future__ import annotations

from typing import Any

import torchgrad_jax.nn.functional as F
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.module import Module
from torchgrad_jax.nn.modules.utils import _ntuple, _single

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d",
    "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d",
    "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip

# ---------------------------------------------------------------------- largest elements


class _MaxPoolNd(Module):
    """stride: by default kernel_size."""

    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.return_indices, self.ceil_mode = padding, dilation, return_indices, ceil_mode

    def extra_repr(self) -> str:
        """See Module."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class MaxPool1d(_MaxPoolNd):
    """The largest element of each window of (N, C, L) or (C, L)."""

    def forward(self, input: Tensor) -> Any:
        """See `F.max_pool1d`."""
        return F.max_pool1d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)


class MaxPool2d(_MaxPoolNd):
    """The largest element of each window of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Any:
        """See `F.max_pool2d`."""
        return F.max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)


class MaxPool3d(_MaxPoolNd):
    """The largest element of each window of (N, C, D, H, W) or (C, D, H, W)."""

    def forward(self, input: Tensor) -> Any:
        """See `F.max_pool3d`."""
        return F.max_pool3d(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)


class _MaxUnpoolNd(Module):
    _spatial_dims: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        each = _ntuple(self._spatial_dims)
        self.kernel_size, self.stride, self.padding = each(kernel_size), each(kernel_size if stride is None else stride), each(padding)

    def extra_repr(self) -> str:
        """See Module."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """What MaxPool1d chose, put back into zeros."""

    _spatial_dims = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: list[int] | None = None) -> Tensor:
        """See `F.max_unpool1d`."""
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpoolNd):
    """What MaxPool2d chose, put back into zeros."""

    _spatial_dims = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: list[int] | None = None) -> Tensor:
        """See `F.max_unpool2d`."""
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpoolNd):
    """What MaxPool3d chose, put back into zeros."""

    _spatial_dims = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: list[int] | None = None) -> Tensor:
        """See `F.max_unpool3d`."""
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class _FractionalMaxPool(Module):
    """Either output_size or output_ratio is given. ValueError where that is not so, or a ratio is not between 0 and 1."""

    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]

    _spatial_dims: int

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None
    ) -> None:
        super().__init__()
        each, name = _ntuple(self._spatial_dims), type(self).__name__
        self.kernel_size, self.return_indices = each(kernel_size), return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else each(output_size)
        self.output_ratio = None if output_ratio is None else each(output_ratio)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest elements of windows of (N, C, H, W) or (C, H, W) whose places chance decides."""

    _spatial_dims = 2

    def forward(self, input: Tensor) -> Any:
        """See `F.fractional_max_pool2d`."""
        return F.fractional_max_pool2d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, _random_samples=self._random_samples
        )


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest elements of windows of (N, C, D, H, W) or (C, D, H, W) whose places chance decides."""

    _spatial_dims = 3

    def forward(self, input: Tensor) -> Any:
        """See `F.fractional_max_pool3d`."""
        return F.fractional_max_pool3d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, _random_samples=self._random_samples
        )


# ---------------------------------------------------------------------- means and norms


class _AvgPoolNd(Module):
    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]

    def extra_repr(self) -> str:
        """See Module."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window of (N, C, L) or (C, L). stride: by default kernel_size."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = _single(kernel_size), _single(kernel_size if stride is None else stride), _single(padding)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """See `F.avg_pool1d`."""
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolOfAny(_AvgPoolNd):
    __constants__ = [*_AvgPoolNd.__constants__, "divisor_override"]

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override


class AvgPool2d(_AvgPoolOfAny):
    """The mean of each window of (N, C, H, W) or (C, H, W). stride: by default kernel_size."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.avg_pool2d`."""
        return F.avg_pool2d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override)


class AvgPool3d(_AvgPoolOfAny):
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W). stride: by default kernel_size."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.avg_pool3d`."""
        return F.avg_pool3d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override)


class _LPPoolNd(Module):
    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def extra_repr(self) -> str:
        """See Module."""
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPoolNd):
    """The norm of each window of (N, C, L) or (C, L)."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.lp_pool1d`."""
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """The norm of each window of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.lp_pool2d`."""
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """The norm of each window of (N, C, D, H, W) or (C, D, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.lp_pool3d`."""
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


# ---------------------------------------------------------------------- of a given output size


class _AdaptiveAvgPoolNd(Module):
    __constants__ = ["output_size"]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        """See Module."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The means of output_size windows that cover (N, C, L) or (C, L)."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.adaptive_avg_pool1d`."""
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The means of output_size windows that cover (N, C, H, W) or (C, H, W); None keeps a size."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.adaptive_avg_pool2d`."""
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The means of output_size windows that cover (N, C, D, H, W) or (C, D, H, W); None keeps a size."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.adaptive_avg_pool3d`."""
        return F.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPoolNd(Module):
    __constants__ = ["output_size", "return_indices"]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def extra_repr(self) -> str:
        """See Module."""
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest elements of output_size windows that cover (N, C, L) or (C, L)."""

    def forward(self, input: Tensor) -> Any:
        """See `F.adaptive_max_pool1d`."""
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest elements of output_size windows that cover (N, C, H, W) or (C, H, W); None keeps a size."""

    def forward(self, input: Tensor) -> Any:
        """See `F.adaptive_max_pool2d`."""
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest elements of output_size windows that cover (N, C, D, H, W) or (C, D, H, W); None keeps a size."""

    def forward(self, input: Tensor) -> Any:
        """See `F.adaptive_max_pool3d`."""
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)
