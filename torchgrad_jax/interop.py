"""Tensors among JAX's own: a pytree of one array, usable wherever JAX takes arrays."""

from __future__ import annotations

from typing import Any

import jax

from torchgrad_jax.runtime.device import for_user
from torchgrad_jax.runtime.value import constant
from torchgrad_jax.tensor import return_types
from torchgrad_jax.tensor.tensor import Tensor, wrap


def _flatten(t: Tensor) -> tuple[tuple[Any], bool]:
    return (for_user(t._concrete()),), t.requires_grad


def _unflatten(requires_grad: bool, children: tuple[Any]) -> Any:
    (array,) = children
    if not hasattr(array, "dtype"):  # JAX puts placeholders into pytrees
        return array
    t = wrap(constant(array))
    t._rg = requires_grad
    return t


def _jax_array(self: Tensor) -> Any:
    return for_user(self._concrete())


def _register_named(kind: type) -> None:
    jax.tree_util.register_pytree_node(kind, lambda pair: (tuple(pair), None), lambda _, children: tuple.__new__(kind, children))


def register() -> None:
    """Make Tensor and the results with names pytree nodes, and Tensor an array for `jax.numpy`."""
    jax.tree_util.register_pytree_node(Tensor, _flatten, _unflatten)
    for kind in return_types.known.values():
        _register_named(kind)
    return_types.listeners.append(_register_named)
    setattr(Tensor, "__jax_array__", _jax_array)  # noqa: B010 - Tensor's own attributes are declared in its class
