"""What a tensor was before a write that autograd follows: an interrupt between the write and its node must leave neither."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.memory.storage import Storage


def before_write(target: Tensor) -> tuple[Any, ...]:
    """The content and the place in the graph of a tensor, and the place of the one it is a view of."""
    storage: Any = target._storage or target._shared()
    value = storage.value if type(storage) is Storage else storage.peek()
    counter, view = storage.counter, target._view
    base: Any = None if view is None else view.base
    if view is None or base is None:
        return value, counter.version, target._node, target._nr, target._rg
    return value, counter.version, target._node, target._nr, target._rg, view.node_seen, base._node, base._nr, base._rg


def unwrite(target: Tensor, before: tuple[Any, ...]) -> None:
    """As if the tensor had not been written to since `before_write`."""
    value, version, *place = before
    storage: Any = target._storage
    if storage.peek() is not value:
        storage.restore(value, version)
    target._node, target._nr, target._rg, *rest = place
    if rest:
        view: Any = target._view
        base = view.base
        view.node_seen, base._node, base._nr, base._rg = rest
