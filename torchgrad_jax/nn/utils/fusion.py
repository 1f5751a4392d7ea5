"""`torch.nn.utils.fusion`: a batch normalization in evaluation as part of the layer before it."""

from __future__ import annotations

import copy
from typing import Any

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import ones_like, zeros_like

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that computes what `conv` and then `bn` do. Both are in evaluation. transpose: `conv` is a transposed one. AssertionError
    where they cannot be one."""
    _check(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias of the convolution that computes what one of conv_w, conv_b and then a normalization do: by the mean bn_rm and the variance
    bn_rv, with the weight bn_w and the bias bn_b. transpose: conv_w is that of a transposed one."""
    channels = [1, -1] if transpose else [-1, 1]
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, channels + [1] * (conv_w.ndim - 2))


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A Linear that computes what `linear` and then `bn` do. Both are in evaluation; bn normalizes as many features as linear gives, or one.
    AssertionError where they cannot be one."""
    _check(linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, "
            f"got linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor, bn_b: Tensor
) -> tuple[Parameter, Parameter]:
    """Weight and bias of the Linear that computes what one of linear_w, linear_b and then a normalization do: by the mean bn_rm and the variance
    bn_rv, with the weight bn_w and the bias bn_b."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _check(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")


def _fused(weight: Any, bias: Any, mean: Any, variance: Any, eps: float, scale: Any, shift: Any, channels: list[int]) -> tuple[Parameter, Parameter]:
    """y = (x - mean) / sqrt(variance + eps) * scale + shift with x = weight @ input + bias."""
    weight_dtype, bias_dtype = weight.dtype, weight.dtype if bias is None else bias.dtype
    bias_grad = weight.requires_grad if bias is None else bias.requires_grad
    bias = zeros_like(mean) if bias is None else bias
    scale = ones_like(mean) if scale is None else scale
    shift = zeros_like(mean) if shift is None else shift
    factor = scale * (variance + eps).rsqrt()
    made = (weight * factor.reshape(channels)).to(dtype=weight_dtype)
    moved = ((bias - mean) * factor + shift).to(dtype=bias_dtype)
    return Parameter(made, weight.requires_grad), Parameter(moved, bias_grad)
