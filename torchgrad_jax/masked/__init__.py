"""`torch.masked`: reductions and normalizations of the elements that a mask names. Of `MaskedTensor`, which keeps its mask, there is a name."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.masked import _ops as _ops
from torchgrad_jax.masked._ops import (
    amax,
    amin,
    argmax,
    argmin,
    cumprod,
    cumsum,
    log_softmax,
    logaddexp,
    logsumexp,
    mean,
    median,
    norm,
    normalize,
    prod,
    softmax,
    softmin,
    std,
    sum,
    var,
)
from torchgrad_jax.runtime.passing_through import never_made, refused

__all__ = [
    "MaskedTensor", "amax", "amin", "argmax", "argmin", "as_masked_tensor", "cumprod", "cumsum", "is_masked_tensor", "log_softmax", "logaddexp",
    "logsumexp", "masked_tensor", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

_INSTEAD = "give the tensor and its mask to functions of torch.masked, or use torch.where"
MaskedTensor = never_made("torch.masked.MaskedTensor", _INSTEAD, Tensor)
masked_tensor = refused("torch.masked.masked_tensor", _INSTEAD)
as_masked_tensor = refused("torch.masked.as_masked_tensor", _INSTEAD)


def is_masked_tensor(obj: Any) -> bool:
    """False: there are none."""
    return False
