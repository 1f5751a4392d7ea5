"""A backward pass that is interrupted has not been, or has been whole: PyTorch's runs where no interrupt can come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.fields import OpNodeFields
from torchgrad_jax.core.node import Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.fields import PlanFields


def grad_before_write(extra: Any, old: Tensor) -> tuple[Any, Tensor, Any, int]:
    """What `Undo.grads` has of a leaf before its `.grad`, `old`, is written to."""
    return extra, old, old._read(), 0 if old._storage is None else old._storage.counter.version


class Undo:
    """What a pass has done so far.

    grads: for each leaf that was reached the `.grad` before, its content and version. freed: the nodes that let go of what they had saved,
    and that; as long as nothing has been run since, so that no memory is held. rest: the nodes still to be freed once all leaves were reached:
    from there on the pass is brought to its end.
    """

    __slots__ = ("grads", "freed", "epoch", "rest")

    def __init__(self) -> None:
        self.grads: list[tuple[Any, Tensor | None, Any, int]] = []
        self.freed: list[tuple[Node, Any]] = []
        self.epoch: Any = None
        self.rest: Sequence[Node] | None = None

    def free(self, node: Any, epoch: Any) -> None:
        """Let a node go of what it has saved."""
        if epoch is not self.epoch:
            self.freed.clear()
            self.epoch = epoch
        if isinstance(node, OpNodeFields):  # most are
            op: Any = node
            self.freed.append((op, op.saved))
            plan: PlanFields = op.plan
            if type(op.saved) is tuple:
                if plan.frees:
                    op.saved = None
                return
            op.release()
        else:
            self.freed.append((node, node.content()))
            node.release()

    def take_back(self) -> None:
        """After an interrupt: as if the pass had not been, or had come to its end."""
        if self.rest is not None:
            for node in self.rest:
                node.release()
            return
        for extra, old, value, version in reversed(self.grads):
            storage = None if old is None or old._view is not None else old._storage
            if storage is not None and storage.peek() is not value:
                storage.restore(value, version)
            extra.grad = old
        for node, content in self.freed:
            node.put_back(content)
