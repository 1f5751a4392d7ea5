"""Rows of a table looked up so that the gradient with respect to it is sparse: the rows that were looked up, and theirs."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.core.anomaly import note_node
from torchgrad_jax.core.dispatch import turn
from torchgrad_jax.core.made import detached
from torchgrad_jax.core.messages import FREED_MESSAGE
from torchgrad_jax.core.node import Calculus, Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval
from torchgrad_jax.sparse.coordinates import host, integers
from torchgrad_jax.sparse.tensors import as_tensor, of_coordinates, value_of


class EmbeddingBackward0(Node):
    """The node of such a look-up."""

    __slots__ = ("table", "indices", "padding_idx", "outputs")

    def __init__(self, weight: Tensor, indices: Tensor, padding_idx: int, outputs: Aval) -> None:
        rec = per_thread.recorder
        self.next, self.hooks, self.seq = (weight._edge(),), None, rec.sequence
        rec.sequence += 1
        self.table, self.padding_idx, self.outputs = weight._aval, padding_idx, outputs
        self.indices: Tensor | None = indices

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return (self.outputs,)

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node. RuntimeError after it was freed."""
        if self.indices is None:
            raise RuntimeError(FREED_MESSAGE)
        values = as_tensor(calculus, grads[0]).reshape(-1, *self.table.shape[1:])
        places = self.indices.reshape(1, -1)
        if self.padding_idx >= 0:
            kept = np.flatnonzero(host(places)[0] != self.padding_idx)
            if len(kept) < places._aval.shape[1]:
                at = integers(kept, places)
                places, values = places.index_select(1, at), values.index_select(0, at)
        made = of_coordinates if calculus.tensors else _value
        return (made(places, values, self.table.shape),)

    def release(self) -> None:
        """See Node."""
        self.indices = None

    def content(self) -> Any:
        """See Node."""
        return self.indices

    def put_back(self, content: Any) -> None:
        """See Node."""
        self.indices = content


def _value(places: Tensor, values: Tensor, size: tuple[int, ...]) -> Any:
    return value_of(size, (places, values))


def followed(found: Tensor, weight: Tensor, indices: Tensor, padding_idx: int) -> Tensor:
    """`found`, the rows of `weight` at these indices, looked up without history, with a node whose gradient is sparse."""
    rec = per_thread.recorder
    if not (weight._rg and rec.grad_enabled):
        return found
    if rec.turned:
        turn(rec)
    if indices._aval.dtype != np.int64:
        indices = indices.long()
    node = EmbeddingBackward0(weight, detached(indices), padding_idx, found._aval)
    if rec.rare:
        note_node(rec, node)
    found._rg, found._node, found._nr = True, node, 0
    return found
