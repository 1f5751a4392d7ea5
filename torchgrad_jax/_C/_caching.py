"""Tensors that are kept from one call to the next: a note which code that steals gradients may ask for. It is kept while caching is enabled."""

from __future__ import annotations

import weakref
from typing import Any

from torchgrad_jax.core.saved import incompatible
from torchgrad_jax.core.tensor import Tensor

_kept: dict[int, weakref.ref[Tensor]] = {}
_enabled = False


def _set_cached_tensors_enabled(enabled: bool) -> None:
    """Whether tensors may be noted; what was noted stays."""
    global _enabled
    _enabled = bool(enabled)


def _add_cached_tensor(tensor: Tensor) -> None:
    """Note a tensor, while it lives. RuntimeError unless caching is enabled."""
    _check("_add_cached_tensor", "None", tensor, True)
    key = id(tensor)
    _kept[key] = weakref.ref(tensor, lambda _: _kept.pop(key, None))


def _remove_cached_tensor(tensor: Tensor) -> None:
    """Forget a tensor; nothing happens if it was not noted. RuntimeError unless caching is enabled."""
    _check("_remove_cached_tensor", "None", tensor, True)
    _kept.pop(id(tensor), None)


def _is_cached_tensor(tensor: Tensor) -> bool:
    """Whether a tensor was noted. False while caching is not enabled."""
    _check("_is_cached_tensor", "bool", tensor)
    return _enabled and id(tensor) in _kept


def _check(name: str, result: str, tensor: Any, only_enabled: bool = False) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(incompatible(name, "(arg0: torch.Tensor)", (tensor,), {}, result))
    if only_enabled and not _enabled:
        raise RuntimeError(f"{name}: cached tensors are not enabled; call _set_cached_tensors_enabled(True) first")
