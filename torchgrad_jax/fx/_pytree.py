"""`torch.fx._pytree`: what generated functions of containers take their arguments apart by."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.lifting.trees import TreeSpec

__all__ = ["tree_flatten_spec"]


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """What a container has where a structure has its leaves. ValueError where it has another structure."""
    return spec.flatten_up_to(pytree)
