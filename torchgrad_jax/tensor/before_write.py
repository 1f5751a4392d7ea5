"""What a tensor was before a write that autograd follows: an interrupt between the write and its node must leave neither."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.tensor.tensor import Tensor


class BeforeWrite:
    """The content and the place in the graph of a tensor, and of the one it is a view of."""

    __slots__ = ("tensors", "storage", "value", "version", "seen")

    def __init__(self, target: Tensor) -> None:
        view = target._view
        base: Any = None if view is None else view.base
        self.tensors = [(t, t._node, t._nr, t._rg) for t in (target, base) if t is not None]
        self.storage = target._storage or target._shared()
        self.value, self.version = self.storage.peek(), self.storage.counter.version
        self.seen = None if view is None else view.node_seen

    def restore(self) -> None:
        """As if it had not been written to."""
        storage = self.storage
        if storage.peek() is not self.value:
            storage.restore(self.value, self.version)
        for t, node, nr, requires_grad in self.tensors:
            t._node, t._nr, t._rg = node, nr, requires_grad
        view = self.tensors[0][0]._view
        if view is not None and self.seen is not None:
            view.node_seen = self.seen
