"""Gradients that cannot be differentiated again: the node that says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.anomaly import note_node
from torchgrad_jax.core.made import detached
from torchgrad_jax.core.node import Calculus, Node, shown
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.recorder import per_thread


class DelayedError(Node):
    """Raises a RuntimeError when a backward pass reaches it."""

    __slots__ = ("_message", "_places", "_inputs")

    @staticmethod
    def outputs(tensors: Sequence[Tensor | None], message: str) -> list[Any]:
        """The tensors as outputs of a new node that raises `message`; None stays None."""
        rec = per_thread.recorder
        node = DelayedError()
        node._message = message
        node._inputs = tuple([None if t is None else t._aval for t in tensors])
        node._places = tuple([t is not None and t.requires_grad for t in tensors])
        node.next = tuple([t._edge() for t in tensors if t is not None and t.requires_grad])
        node.seq, node.hooks = rec.sequence, None
        rec.sequence += 1
        if rec.rare:
            note_node(rec, node)
        outs = [None if t is None else detached(t) for t in tensors]
        for i, out in enumerate(outs):
            if out is not None:
                out._node, out._nr, out._rg = node, i, True
        return outs

    def name(self) -> str:
        """See Node."""
        return "torch::autograd::Error"

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """See Node."""
        edges = iter(self.next)
        return tuple([shown(next(edges)) if there else (None, 0) for there in self._places])

    @property
    def output_avals(self) -> tuple[Any, ...]:
        """See Node."""
        return self._inputs

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        raise RuntimeError(self._message)


DelayedError.__name__ = "Error"
