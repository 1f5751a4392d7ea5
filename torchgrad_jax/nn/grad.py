"""`torch.nn.grad`: the gradients of convolutions in their input and in their weight, for those who write a backward by hand. They have gradients
themselves, and raise a RuntimeError for shapes that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.convolution_backward import convolution_backward
from torchgrad_jax.nn.modules.utils import _ntuple

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _one(which: int, dims: int, grad_output: Tensor, input: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    if isinstance(padding, str):
        raise RuntimeError(f"convolution_backward(): argument 'padding' must be numbers, not {padding!r}: pad the input, and give 0")
    each = _ntuple(dims)
    mask = [which == i for i in range(3)]
    options = each(stride), each(padding), each(dilation), False, (0,) * dims, groups
    return convolution_backward(grad_output, input, weight, None, *options, mask)[which]


def _of_size(like: Tensor, size: Sequence[int]) -> Tensor:
    """Stands for what the gradient is in, of which no element is read."""
    return like.detach().new_empty(1).expand(size)


def conv1d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv1d` in its input, of the shape `input_size`, (N, C, L), given that of the result."""
    return _one(0, 1, grad_output, _of_size(grad_output, input_size), weight, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv1d` in its weight, of the shape `weight_size`, (O, C / groups, K), given that of the result."""
    return _one(1, 1, grad_output, input, _of_size(grad_output, weight_size), stride, padding, dilation, groups)


def conv2d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv2d` in its input, of the shape `input_size`, (N, C, H, W), given that of the result."""
    return _one(0, 2, grad_output, _of_size(grad_output, input_size), weight, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv2d` in its weight, of the shape `weight_size`, (O, C / groups, KH, KW), given that of the result."""
    return _one(1, 2, grad_output, input, _of_size(grad_output, weight_size), stride, padding, dilation, groups)


def conv3d_input(
    input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv3d` in its input, of the shape `input_size`, (N, C, D, H, W), given that of the result."""
    return _one(0, 3, grad_output, _of_size(grad_output, input_size), weight, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The gradient of `conv3d` in its weight, of the shape `weight_size`, (O, C / groups, KD, KH, KW), given that of the result."""
    return _one(1, 3, grad_output, input, _of_size(grad_output, weight_size), stride, padding, dilation, groups)
