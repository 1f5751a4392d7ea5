"""The checkpoint with reentry: forward without a graph, and within its backward a second forward and a backward pass of its own."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from torchgrad_jax.autograd import backward
from torchgrad_jax.autograd.function import Function
from torchgrad_jax.autograd.grad_mode import enable_grad, no_grad
from torchgrad_jax.autograd.graph import graph_task
from torchgrad_jax.core.autocasting import Under
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.utils.checkpointing.behind import behind
from torchgrad_jax.utils.checkpointing.random_state import RandomState

_NOT_ALL_LEAVES = (
    "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to .backward(). To resolve this "
    "error, you can either set use_reentrant=False, or call .backward() without passing the `inputs` argument."
)


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same, with tensors detached that require a gradient if those did. RuntimeError for anything but a tuple."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple([x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs])


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn where no tensor among `inputs` requires a gradient."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warn_user("None of the inputs have requires_grad=True. Gradients will be None")


class CheckpointFunction(Function):
    """``apply(function, preserve_rng_state, *args)``: what `checkpoint` with ``use_reentrant=True`` calls."""

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.random_state = RandomState() if preserve_rng_state else None
        ctx.autocast = Under()
        ctx.places = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        ctx.inputs = [None if isinstance(x, Tensor) else x for x in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        task = graph_task()
        if task is not None and task.captures is not None:
            raise RuntimeError(_NOT_ALL_LEAVES)
        inputs = list(ctx.inputs)
        for i, t in zip(ctx.places, ctx.saved_tensors, strict=True):
            inputs[i] = t
        again = detach_variable(tuple(inputs))
        with (
            nullcontext() if ctx.random_state is None else ctx.random_state.again(),
            ctx.autocast,
            enable_grad(),
            behind([g for g in grads if g is not None], again),
        ):
            outputs = ctx.run_function(*again)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        wanted = [(out, grads[i]) for i, out in enumerate(outputs) if isinstance(out, Tensor) and out.requires_grad]
        if not wanted:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([out for out, _ in wanted], [grad for _, grad in wanted])
        return None, None, *[x.grad if isinstance(x, Tensor) else None for x in again]


CheckpointFunction.__module__ = "torch.utils.checkpoint"
