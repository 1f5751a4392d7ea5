"""`torch._C._nn`: how classes that define `to` themselves read its arguments, and the functions of `torch.nn.functional` that PyTorch has here."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.functions.conversion import parse_to
from torchgrad_jax.nn.functional import (
    avg_pool2d,
    avg_pool3d,
    elu_,
    gelu,
    hardtanh_,
    leaky_relu_,
    linear,
    one_hot,
    scaled_dot_product_attention,
    softplus,
    softshrink,
)
from torchgrad_jax.nn.functional import logsigmoid as log_sigmoid

__all__ = [
    "_parse_to", "avg_pool2d", "avg_pool3d", "elu_", "gelu", "hardtanh_", "leaky_relu_", "linear", "log_sigmoid", "one_hot",
    "scaled_dot_product_attention", "softplus", "softshrink",
]  # fmt: skip


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """The device, the dtype, whether a move may be asynchronous, and the memory format that the arguments of ``to`` mean."""
    return parse_to(args, kwargs)
