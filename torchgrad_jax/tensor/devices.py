"""Moving a tensor that has a history: the gradient moves back."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Aval, Value
from torchgrad_jax.tensor.conversion import move, moved_value
from torchgrad_jax.tensor.node import Calculus, Node
from torchgrad_jax.tensor.tensor import Tensor, created


class ToCopyBackward0(Node):
    """The grad_fn of a tensor that was moved to another device."""

    def __init__(self, t: Tensor, moved: Aval) -> None:
        rec = per_thread.recorder
        self.source, self.moved = t.device, moved
        self.next = (t._edge(),)
        self.seq = rec.sequence
        self.hooks = None
        rec.sequence += 1

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return (self.moved,)

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        grad: Any = grads[0]
        if isinstance(grad, Value):
            return (moved_value(grad, self.source),)
        return (move(grad, self.source),)


def move_with_history(t: Tensor, where: device) -> Tensor:
    """A differentiable copy on another device."""
    made = created(moved_value(t._read(), where))
    if per_thread.recorder.grad_enabled:
        made._rg, made._node = True, ToCopyBackward0(t, made._aval)
    return made
