"""Moving a tensor that has a history: the gradient moves back."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.core.anomaly import note_node
from torchgrad_jax.core.made import created
from torchgrad_jax.core.node import Calculus, Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval, Value, moved


class ToCopyBackward0(Node):
    """The grad_fn of a tensor that was moved to another device."""

    def __init__(self, t: Tensor, there: Aval) -> None:
        rec = per_thread.recorder
        self.source, self.there = t.device, there
        self.next = (t._edge(),)
        self.seq = rec.sequence
        self.hooks = None
        rec.sequence += 1
        if rec.rare:
            note_node(rec, self)

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return (self.there,)

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        grad: Any = grads[0]
        if isinstance(grad, Value):
            return (moved(grad, self.source),)
        return (move(grad, self.source),)


def move_with_history(t: Tensor, where: device) -> Tensor:
    """A differentiable copy on another device."""
    made = created(moved(t._read(), where))
    if per_thread.recorder.grad_enabled:
        made._rg, made._node = True, ToCopyBackward0(t, made._aval)
    return made


def move(self: Tensor, where: device) -> Tensor:
    """The tensor on another device: itself if it is there already. Gradients come back to the source."""
    if self._aval.device is where:
        return self
    if self.requires_grad:
        return move_with_history(self, where)
    return created(moved(self._read(), where))
