"""`once_differentiable`: a backward that computes without a graph."""

from __future__ import annotations

from functools import wraps
from typing import Any

from torchgrad_jax.core.refusal import DelayedError
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.recorder import per_thread


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
        # As in PyTorch the refusing node's edges lead to leaves that nobody else has.
        leaves = [None if g is None else g.detach().requires_grad_() for g in (outs if several else (outs,))]
        made = DelayedError.outputs(leaves, "trying to differentiate twice a function that was marked with @once_differentiable")
        return tuple(made) if several else made[0]

    return backward
