"""What the modules of this package give to `torch` and to `Tensor`."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.nn import (
    activation,
    attention,
    convolution,
    distance,
    dropout,
    grid,
    linear,
    loss,
    multihead,
    normalization,
    padding,
    pooling,
    sparse,
)
from torchgrad_jax.tensor.overrides import guarded
from torchgrad_jax.tensor.tensor import Tensor

_MODULES: tuple[Any, ...] = (
    activation, attention, convolution, distance, dropout, grid, linear, loss, multihead, normalization, padding, pooling, sparse,
)  # fmt: skip


def install() -> dict[str, Any]:
    """Give Tensor its methods; returns the names for `torch`."""
    found: dict[str, Any] = {}
    for module in _MODULES:
        found.update(module.TOPLEVEL)
        for name, function in module.METHODS.items():
            setattr(Tensor, name, function)
    return guarded("torch", found)
