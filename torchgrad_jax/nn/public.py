"""What the modules of this package give to `torch` and to `Tensor`."""

from __future__ import annotations

from typing import Any

# By their own names: `from torchgrad_jax.nn import` would ask the package for them, and so load it.
import torchgrad_jax.nn.activation as activation
import torchgrad_jax.nn.attention as attention
import torchgrad_jax.nn.convolution as convolution
import torchgrad_jax.nn.distance as distance
import torchgrad_jax.nn.dropout as dropout
import torchgrad_jax.nn.grid as grid
import torchgrad_jax.nn.linear as linear
import torchgrad_jax.nn.loss as loss
import torchgrad_jax.nn.margins as margins
import torchgrad_jax.nn.multihead as multihead
import torchgrad_jax.nn.normalization as normalization
import torchgrad_jax.nn.padding as padding
import torchgrad_jax.nn.pooling as pooling
import torchgrad_jax.nn.sparse as sparse
from torchgrad_jax.tensor.overrides import guarded
from torchgrad_jax.tensor.tensor import Tensor

_MODULES: tuple[Any, ...] = (
    activation, attention, convolution, distance, dropout, grid, linear, loss, margins, multihead, normalization, padding, pooling, sparse,
)  # fmt: skip


def install() -> dict[str, Any]:
    """Give Tensor its methods; returns the names for `torch`."""
    found: dict[str, Any] = {}
    for module in _MODULES:
        found.update(module.TOPLEVEL)
        for name, function in module.METHODS.items():
            setattr(Tensor, name, function)
    return guarded("torch", found)
