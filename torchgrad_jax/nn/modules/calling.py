"""What happens when a Module is called: hooks before and after `forward`, and hooks on the gradients of its inputs and outputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torchgrad_jax.autograd.function import Function
from torchgrad_jax.autograd.grad_mode import is_grad_enabled
from torchgrad_jax.core.node import RemovableHandle
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.pickles import in_pickles
from torchgrad_jax.runtime.user_code import warn_user


@in_pickles("HookTable")
class HookTable(OrderedDict[int, Any]):
    """The hooks of one kind by the number of their handle. A hook is kept with its options."""

    __slots__ = ()

    def add(self, hook: Callable[..., Any], prepend: bool = False, **options: Any) -> RemovableHandle:
        """Add a hook at the end, or at the front."""
        handle = RemovableHandle(self)  # type: ignore[arg-type] - it takes hooks out of it by their number
        self[handle.id] = Hook(hook, **options)
        if prepend:
            self.move_to_end(handle.id, last=False)
        return handle


class Hook:
    """A hook and how it is to be called."""

    __slots__ = ("function", "with_kwargs", "always_call")

    def __init__(self, function: Callable[..., Any], with_kwargs: bool = False, always_call: bool = False) -> None:
        self.function, self.with_kwargs, self.always_call = function, with_kwargs, always_call


# Hooks of every module; they run before the module's own.
everywhere = {kind: HookTable() for kind in ("forward_pre", "forward", "backward_pre", "backward")}
_KINDS = tuple((kind, f"_{kind}_hooks") for kind in everywhere)


class Called:
    """The part of Module that is called."""

    forward: Callable[..., Any]
    _forward_pre_hooks: HookTable
    _forward_hooks: HookTable
    _backward_pre_hooks: HookTable
    _backward_hooks: HookTable

    def __init__(self) -> None:
        for _, table in _KINDS:
            object.__setattr__(self, table, HookTable())

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Call ``hook(module, args)`` before `forward`; what it returns, if anything, replaces the arguments. with_kwargs: it is
        ``hook(module, args, kwargs)`` and returns None or a pair. prepend: before the hooks that are there."""
        return self._forward_pre_hooks.add(hook, prepend, with_kwargs=with_kwargs)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` (with_kwargs: ``hook(module, args, kwargs, output)``) after `forward`; what it returns, if anything,
        replaces the output. always_call: also where `forward` or another hook raises."""
        return self._forward_hooks.add(hook, prepend, with_kwargs=with_kwargs, always_call=always_call)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` when the gradients of the outputs are known; what it returns, if anything, replaces them."""
        return self._backward_pre_hooks.add(hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are known; what it returns, if anything, replaces
        grad_input. Where no input requires a gradient it is called with Nones when the gradients of the outputs are."""
        return self._backward_hooks.add(hook, prepend)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forward` with the hooks around it."""
        if not (
            self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks or any(everywhere.values())
        ):  # fmt: skip
            return self.forward(*args, **kwargs)
        return _call_with_hooks(self, args, kwargs)


def _hooks(module: Called, kind: str) -> list[Hook]:
    return [*everywhere[kind].values(), *getattr(module, f"_{kind}_hooks").values()]


def _call_with_hooks(module: Called, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    called: list[Hook] = []
    result = None
    try:
        args, kwargs = _before(module, args, kwargs)
        crossing = _Crossing.of(module)
        if crossing is not None:
            args = crossing.enter(args)
        result = module.forward(*args, **kwargs)
        for hook in _hooks(module, "forward"):
            called.append(hook)
            result = _after(module, hook, args, kwargs, result)
        return result if crossing is None else crossing.leave(result)
    except Exception:
        for hook in _hooks(module, "forward"):
            if hook.always_call and hook not in called:
                try:
                    result = _after(module, hook, args, kwargs, result)
                except Exception as error:  # the first error is the one to raise
                    warn_user(SILENCED.format(error), UserWarning)
        raise


SILENCED = "module forward hook with ``always_call=True`` raised an exception that was silenced as another error was raised in forward: {}"


def _before(module: Called, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for hook in _hooks(module, "forward_pre"):
        if not hook.with_kwargs:
            found = hook.function(module, args)
            if found is not None:
                args = found if isinstance(found, tuple) else (found,)
            continue
        found = hook.function(module, args, kwargs)
        if found is None:
            continue
        if not (isinstance(found, tuple) and len(found) == 2):
            raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {found}.")
        args, kwargs = found
    return args, kwargs


def _after(module: Called, hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    found = hook.function(module, args, kwargs, result) if hook.with_kwargs else hook.function(module, args, result)
    return result if found is None else found


# ---------------------------------------------------------------------- gradients of inputs and outputs


class BackwardHookFunction(Function):
    """The identity: its node is where hooks on the gradients of several tensors at once are."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        """See Function."""
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """See Function."""
        return grads


NO_INPUTS = (
    "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require gradients. See "
    "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module.register_full_backward_hook for more details."
)


class _Crossing:
    """One call of a module that has backward hooks: what the gradients at its outputs were, for the hooks at its inputs."""

    def __init__(self, module: Called, pre_hooks: list[Hook], hooks: list[Hook]) -> None:
        self.module, self.pre_hooks, self.hooks = module, pre_hooks, hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.inputs = 0
        self.watches_inputs = False

    @classmethod
    def of(cls, module: Called) -> _Crossing | None:
        """The crossing that begins; None where there are no backward hooks."""
        pre_hooks, hooks = _hooks(module, "backward_pre"), _hooks(module, "backward")
        return cls(module, pre_hooks, hooks) if pre_hooks or hooks else None

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of `forward`, watched."""
        self.inputs = len(args)
        made, places, node = _watched(args)
        if node is not None:
            self.watches_inputs = True

            def hook(grads: tuple[Any, ...], _: Any) -> Any:
                return self._at_inputs(places, grads)

            node.register_hook(hook)
        return made

    def leave(self, result: Any) -> Any:
        """The result of `forward`, watched."""
        results = result if isinstance(result, tuple) else (result,)
        if not isinstance(result, (Tensor, tuple)):
            text = f"For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received {type(result)}"
            warn_user(text, UserWarning)
            return result
        made, places, node = _watched(results)
        if node is not None:

            def hook(grads: tuple[Any, ...]) -> Any:
                return self._at_outputs(places, len(results), grads)

            node.register_prehook(hook)
        return made if isinstance(result, tuple) else made[0]

    def _at_outputs(self, places: list[int], size: int, grads: tuple[Any, ...]) -> Any:
        grad_output = _spread(grads, places, size)
        for hook in self.pre_hooks:
            found = hook.function(self.module, grad_output)
            if found is not None:
                grad_output = _as_many(found, grad_output, "Backward pre hook", "grad_output")
        self.grad_outputs = grad_output
        if not self.watches_inputs:
            self._without_inputs(grad_output)
        return tuple(grad_output[i] for i in places)

    def _without_inputs(self, grad_output: tuple[Any, ...]) -> None:
        warn_user(NO_INPUTS, UserWarning)
        nothing = (None,) * self.inputs
        for hook in self.hooks:
            found = hook.function(self.module, nothing, grad_output)
            if found is not None and not (isinstance(found, tuple) and all(g is None for g in found)):
                raise RuntimeError("Backward hook for Modules where no input requires gradient should always return None or None for all gradients.")
        self.grad_outputs = None

    def _at_inputs(self, places: list[int], grads: tuple[Any, ...]) -> Any:
        if self.grad_outputs is None:  # the gradient came by another way than the outputs
            return None
        grad_input = _spread(grads, places, self.inputs)
        for hook in self.hooks:
            found = hook.function(self.module, grad_input, self.grad_outputs)
            if found is not None:
                grad_input = _as_many(found, grad_input, "Backward hook", "grad_input")
        self.grad_outputs = None
        return tuple(grad_input[i] for i in places)


def _watched(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int], Any]:
    """The values with their tensors passed through one node, where the tensors are, and the node. None where nothing requires a gradient."""
    places = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not (is_grad_enabled() and any(values[i].requires_grad for i in places)):
        return values, places, None
    through: Any = BackwardHookFunction.apply(*[values[i] for i in places])
    made = list(values)
    node = None
    for i, t in zip(places, through, strict=True):
        made[i] = t
        node = node or t.grad_fn
    return tuple(made), places, node


def _spread(grads: tuple[Any, ...], places: list[int], size: int) -> tuple[Any, ...]:
    """The gradients where their tensors are among the arguments; None elsewhere."""
    found: list[Any] = [None] * size
    for i, g in zip(places, grads, strict=True):
        found[i] = g
    return tuple(found)


def _as_many(found: Any, replaced: tuple[Any, ...], who: str, what: str) -> tuple[Any, ...]:
    if len(found) != len(replaced):
        raise RuntimeError(f"{who} returned an invalid number of {what}, got {len(found)}, but expected {len(replaced)}")
    return found


# ---------------------------------------------------------------------- hooks of all modules


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_forward_pre_hook` for all modules."""
    return everywhere["forward_pre"].add(hook)


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """`Module.register_forward_hook` for all modules."""
    return everywhere["forward"].add(hook, with_kwargs=with_kwargs, always_call=always_call)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_full_backward_pre_hook` for all modules."""
    return everywhere["backward_pre"].add(hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_full_backward_hook` for all modules."""
    return everywhere["backward"].add(hook)
