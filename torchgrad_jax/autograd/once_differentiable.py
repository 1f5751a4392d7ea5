"""`once_differentiable`: a backward that computes without a graph."""

from __future__ import annotations

from functools import wraps
from typing import Any

from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.tensor.inplace import detached
from torchgrad_jax.tensor.node import Calculus, Node
from torchgrad_jax.tensor.tensor import Tensor


def once_differentiable(fn: Any) -> Any:
    """Decorator of a `backward` that computes without a graph: differentiating its results raises RuntimeError."""

    @wraps(fn)
    def backward(ctx: Any, *args: Any) -> Any:
        rec = per_thread.recorder
        recording = rec.grad_enabled
        rec.grad_enabled = False
        try:
            outs = fn(ctx, *args)
        finally:
            rec.grad_enabled = recording
        if not recording or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outs
        several = isinstance(outs, tuple)
        made = DifferentiatedTwice.outputs(list(outs) if several else [outs])
        return tuple(made) if several else made[0]

    return backward


class DifferentiatedTwice(Node):
    """The grad_fn of what a once differentiable backward returned. As in PyTorch its edges lead to leaves that nobody else has."""

    __slots__ = ("_leaves",)

    @staticmethod
    def outputs(grads: list[Any]) -> list[Any]:
        """The gradients as outputs of a new node; None stays None."""
        made = [None if g is None else g.detach().requires_grad_() for g in grads]
        rec = per_thread.recorder
        node = DifferentiatedTwice()
        node._leaves = tuple(made)
        node.next = tuple([leaf._edge() for leaf in made if leaf is not None])
        node.seq, node.hooks = rec.sequence, None
        rec.sequence += 1
        outs = [None if g is None else detached(g) for g in grads]
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
        return tuple([(None, 0) if leaf is None else next(edges) for leaf in self._leaves])

    @property
    def output_avals(self) -> tuple[Any, ...]:
        """See Node."""
        return tuple([None if leaf is None else leaf._aval for leaf in self._leaves])

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


DifferentiatedTwice.__name__ = "Error"
