"""Tensors among JAX's own: a pytree of one array, usable wherever JAX takes arrays."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from torchgrad_jax.calling import return_types
from torchgrad_jax.core.tensor import Tensor, wrap
from torchgrad_jax.lifting.from_jax import refuse_captured
from torchgrad_jax.runtime._jax_compat import call_x64
from torchgrad_jax.runtime.device import for_user
from torchgrad_jax.runtime.value import Value, aval_of, constant, is_tracer


def _flatten(t: Tensor) -> tuple[tuple[Any], tuple[bool, np.dtype | None]]:
    """The array, and beside it whether the tensor requires grad, and its dtype where JAX's array has half of its bits."""
    array, dtype = for_user(_read(t)), t._aval.dtype
    return (array,), (t.requires_grad, None if array.dtype == dtype else dtype)


def _unflatten(aside: tuple[bool, np.dtype | None], children: tuple[Any]) -> Any:
    (array,) = children
    requires_grad, dtype = aside
    if not hasattr(array, "dtype"):  # JAX puts placeholders into pytrees
        return array
    t = wrap(constant(array) if dtype is None else _widened(array, dtype))
    t._rg = requires_grad
    return t


def _widened(array: Any, dtype: np.dtype) -> Value:
    """What a tensor of 64 bits was before JAX had it: inside a transformation it is called what it was. Another dtype is the user's doing."""
    if array.dtype != jax.dtypes.canonicalize_dtype(dtype):
        return constant(array)
    if is_tracer(array):
        return constant(array, aval_of(tuple(array.shape), dtype))
    return constant(call_x64(array.astype, dtype))


def _read(t: Tensor) -> Any:
    array = t._concrete()
    refuse_captured(array)
    return array


def _jax_array(self: Tensor) -> Any:
    return for_user(_read(self))


def _register_named(kind: type) -> None:
    jax.tree_util.register_pytree_node(kind, lambda pair: (tuple(pair), None), lambda _, children: tuple.__new__(kind, children))


def register() -> None:
    """Make Tensor and the results with names pytree nodes, and Tensor an array for `jax.numpy`."""
    jax.tree_util.register_pytree_node(Tensor, _flatten, _unflatten)
    for kind in return_types.known.values():
        _register_named(kind)
    return_types.listeners.append(_register_named)
    setattr(Tensor, "__jax_array__", _jax_array)  # noqa: B010 - Tensor's own attributes are declared in its class
