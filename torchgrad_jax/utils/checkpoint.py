"""`torch.utils.checkpoint`: parts of a model whose intermediate results are not kept for backward, but computed again there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from torchgrad_jax.autograd.saved_tensors import saved_tensors_hooks
from torchgrad_jax.autograd.undisturbed import undisturbed
from torchgrad_jax.core.autocasting import Under
from torchgrad_jax.nn.modules import Sequential
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user
from torchgrad_jax.utils.checkpointing.errors import CheckpointError
from torchgrad_jax.utils.checkpointing.frames import Frame, GraphExecGroup, Inputs
from torchgrad_jax.utils.checkpointing.random_state import RandomState, get_device_states, set_device_states
from torchgrad_jax.utils.checkpointing.reentrant import CheckpointFunction, check_backward_validity, detach_variable
from torchgrad_jax.utils.checkpointing.selective import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)
from torchgrad_jax.utils.checkpointing.settings import DefaultDeviceType, set_checkpoint_debug_enabled, set_checkpoint_early_stop, settings
from torchgrad_jax.utils.checkpointing.tracing import Traces

__all__ = [
    "SAC_IGNORED_OPS", "CheckpointError", "CheckpointFunction", "CheckpointPolicy", "DefaultDeviceType", "GraphExecGroup",
    "SelectiveCheckpointContext", "check_backward_validity", "checkpoint", "checkpoint_sequential", "create_selective_checkpoint_contexts",
    "detach_variable", "get_device_states", "noop_context_fn", "set_checkpoint_debug_enabled", "set_checkpoint_early_stop", "set_device_states",
]  # fmt: skip

_CHECKS = ["default", "none"]
_NOT_SAID = (
    "the use_reentrant parameter should be passed explicitly. {} use_reentrant=False is recommended, but if you need to preserve the current default "
    "behavior, you can pass use_reentrant=True. Refer to docs for more details on the differences between the two variants."
)
_LATER = "Starting in PyTorch 2.9, calling checkpoint without use_reentrant will raise an exception."
_LATER_SEQUENTIAL = "In version 2.9 we will raise an exception if use_reentrant is not passed."
Contexts = Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]]


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Two contexts that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@undisturbed
def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Contexts = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, of which nothing is kept for backward but the arguments: backward runs the function again.

    use_reentrant: False (recommended) works with all of autograd: `grad`, `inputs=`, double backward, keyword arguments, nested results, captured
    tensors, hooks. True runs forward without a graph, and a backward pass within the backward pass; only a `backward()` of all leaves reaches it,
    gradients go to the tensors among `args` and to leaves, and one of `args` must require a gradient. None is True, with a warning.
    preserve_rng_state (by keyword): whether recomputation draws the same random numbers; True.

    Of the form without reentry: context_fn gives two context managers, for the forward pass and for the recomputation. determinism_check:
    "default" compares number, shape, dtype and device of what is saved the second time, "none" the number alone. debug: errors tell what ran.
    early_stop: recomputation ends with the last tensor that is needed.

    ValueError for arguments that there are not, or not in this form. In backward: CheckpointError (a RuntimeError) where the recomputation is not
    like the forward pass, RuntimeError where an argument was written to since.

    Example::

        h = checkpoint(block, x, use_reentrant=False)
    """
    if use_reentrant is None:
        warn_user("torch.utils.checkpoint: " + _NOT_SAID.format(_LATER))
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in _CHECKS:
        raise ValueError(f"determinism_check should be one of {_CHECKS}, but got {determinism_check}")
    if settings.early_stop is not None:
        early_stop = settings.early_stop
    if settings.debug is not None:
        debug = settings.debug
    explained: Callable[[CheckpointError], Exception] = _as_it_is
    if debug:
        if context_fn is not noop_context_fn:
            raise ValueError("debug=True is incompatible with non-default context_fn")
        traces = Traces()
        context_fn, explained = traces.contexts, traces.explained
    if not per_thread.recorder.grad_enabled:
        return function(*args, **kwargs)
    forward, again = context_fn()
    frame = Frame(function, Inputs(args, kwargs), _around(RandomState() if preserve else None, again), early_stop,
                  determinism_check == "default", explained)  # fmt: skip
    with saved_tensors_hooks(frame.pack, frame.unpack), forward:
        found = function(*args, **kwargs)
    frame.complete = True
    return found


def _as_it_is(error: CheckpointError) -> CheckpointError:
    return error


def _around(random_state: RandomState | None, context: AbstractContextManager[Any]) -> Callable[[], AbstractContextManager[Any]]:
    """What makes the context of each recomputation, under the present settings of autocast."""
    autocast = Under()

    @contextlib.contextmanager
    def around() -> Any:
        with contextlib.nullcontext() if random_state is None else random_state.again(), autocast, context:
            yield

    return around


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """A `Sequential`, or functions that are called one after the other, in `segments` parts, each a checkpoint of its own but the last, whose
    intermediate results are kept.

    functions: a `Sequential`, or a list of modules and functions of one argument. input: the first one's argument. use_reentrant,
    preserve_rng_state: see `checkpoint`. ValueError for other keyword arguments.

    Example::

        y = checkpoint_sequential(model, 4, x, use_reentrant=False)
    """
    if use_reentrant is None:
        warn_user("torch.utils.checkpoint.checkpoint_sequential: " + _NOT_SAID.format(_LATER_SEQUENTIAL))
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if isinstance(functions, Sequential):
        functions = list(functions.children())
    size = len(functions) // segments
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(_run(functions[start:end]), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _run(functions[end:])(input)


def _run(functions: Iterable[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(input: Any) -> Any:
        for function in functions:
            input = function(input)
        return input

    return run
