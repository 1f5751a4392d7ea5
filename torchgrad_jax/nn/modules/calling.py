"""What happens when a Module is called: hooks before and after `forward`, and hooks on the gradients of its inputs and outputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from torchgrad_jax.autograd.function import Function
from torchgrad_jax.autograd.grad_mode import is_grad_enabled
from torchgrad_jax.core.node import RemovableHandle, registered
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.user_code import warn_user

Hooks = OrderedDict[int, Callable[..., Any]]

# Hooks of every module by the number of their handle; they run before the module's own.
_global_forward_pre_hooks: Hooks = OrderedDict()
_global_forward_hooks: Hooks = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()
_global_forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
_global_backward_pre_hooks: Hooks = OrderedDict()
_global_backward_hooks: Hooks = OrderedDict()
# Whether the backward hooks of every module are full ones; None while there was none.
_global_is_full_backward_hook: bool | None = None
# All of these.
hooks_of_all = (
    _global_forward_pre_hooks, _global_forward_hooks, _global_forward_hooks_with_kwargs, _global_forward_hooks_always_called,
    _global_backward_pre_hooks, _global_backward_hooks,
)  # fmt: skip


class Called:
    """The part of Module that is called."""

    forward: Callable[..., Any]
    _backward_pre_hooks: Hooks
    _backward_hooks: Hooks
    _is_full_backward_hook: bool | None
    _forward_hooks: Hooks
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _forward_pre_hooks: Hooks
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]

    def register_forward_pre_hook(self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """Call ``hook(module, args)`` before `forward`; what it returns, if anything, replaces the arguments. with_kwargs: it is
        ``hook(module, args, kwargs)`` and returns None or a pair. prepend: before the hooks that are there."""
        marked = (self._forward_pre_hooks_with_kwargs,) if with_kwargs else ()
        return registered(self._forward_pre_hooks, hook, prepend, marked)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` (with_kwargs: ``hook(module, args, kwargs, output)``) after `forward`; what it returns, if anything,
        replaces the output. always_call: also where `forward` or another hook raises."""
        hooks = self._forward_hooks
        tables = ((with_kwargs, self._forward_hooks_with_kwargs), (always_call, self._forward_hooks_always_called))
        return registered(hooks, hook, prepend, [table for wanted, table in tables if wanted])

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` when the gradients of the outputs are known; what it returns, if anything, replaces them."""
        return registered(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are known; what it returns, if anything, replaces
        grad_input. Where no input requires a gradient it is called with Nones when the gradients of the outputs are. RuntimeError where the module
        has hooks of `register_backward_hook`."""
        if self._is_full_backward_hook is False:
            raise RuntimeError(_ONE_KIND.format("on a single Module"))
        self._is_full_backward_hook = True
        return registered(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Deprecated: call ``hook(module, grad_input, grad_output)`` when the last operation of `forward` has computed its gradients: grad_input
        are those of that operation's operands. RuntimeError where the module has hooks of `register_full_backward_hook`."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(_ONE_KIND.format("on a single Module"))
        self._is_full_backward_hook = False
        return registered(self._backward_hooks, hook)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """`forward` with the hooks around it."""
        if not (
            self._backward_hooks or self._backward_pre_hooks or self._forward_hooks or self._forward_pre_hooks
            or _global_backward_pre_hooks or _global_backward_hooks or _global_forward_hooks or _global_forward_pre_hooks
        ):  # fmt: skip
            return self.forward(*args, **kwargs)
        return _call_with_hooks(self, args, kwargs)

    __call__ = _wrapped_call_impl = _call_impl


def has_hooks(module: Any) -> bool:
    """Whether a call of the module is more than its `forward`."""
    own = (module._backward_hooks, module._backward_pre_hooks, module._forward_hooks, module._forward_pre_hooks)
    return any(own) or any((_global_backward_pre_hooks, _global_backward_hooks, _global_forward_hooks, _global_forward_pre_hooks))


_ONE_KIND = "Cannot use both regular backward hooks and full backward hooks {}. Please use only one of them."


class _ForwardHook:
    """A forward hook and how it is to be called."""

    __slots__ = ("key", "function", "with_kwargs", "always_call")

    def __init__(self, key: tuple[str, int], function: Callable[..., Any], with_kwargs: bool, always_call: bool) -> None:
        self.key, self.function, self.with_kwargs, self.always_call = key, function, with_kwargs, always_call

    def after(self, module: Called, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """What becomes of the result."""
        found = self.function(module, args, kwargs, result) if self.with_kwargs else self.function(module, args, result)
        return result if found is None else found


def _forward_hooks(module: Called) -> Iterator[_ForwardHook]:
    for whose, hooks, with_kwargs, always in (
        ("every", _global_forward_hooks, _global_forward_hooks_with_kwargs, _global_forward_hooks_always_called),
        ("own", module._forward_hooks, module._forward_hooks_with_kwargs, module._forward_hooks_always_called),
    ):
        for number, hook in list(hooks.items()):
            yield _ForwardHook((whose, number), hook, number in with_kwargs, number in always)


def _call_with_hooks(module: Called, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    called: set[tuple[str, int]] = set()
    result = None
    try:
        args, kwargs = _before(module, args, kwargs)
        crossing = Crossing.of(module)
        if crossing is not None:
            args = crossing.enter(args)
        result = module.forward(*args, **kwargs)
        for hook in _forward_hooks(module):
            called.add(hook.key)
            result = hook.after(module, args, kwargs, result)
        if crossing is not None:
            result = crossing.leave(result)
        _watch_last_operation(module, args, result)
        return result
    except Exception:
        for hook in _forward_hooks(module):
            if hook.always_call and hook.key not in called:
                try:
                    result = hook.after(module, args, kwargs, result)
                except Exception as error:  # the first error is the one to raise
                    warn_user(SILENCED.format(error), UserWarning)
        raise


SILENCED = "module forward hook with ``always_call=True`` raised an exception that was silenced as another error was raised in forward: {}"


def _before(module: Called, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    own, with_kwargs = module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs
    for hook, takes_kwargs in [*((h, False) for h in _global_forward_pre_hooks.values()), *((h, n in with_kwargs) for n, h in own.items())]:
        if not takes_kwargs:
            found = hook(module, args)
            if found is not None:
                args = found if isinstance(found, tuple) else (found,)
            continue
        found = hook(module, args, kwargs)
        if found is None:
            continue
        if not (isinstance(found, tuple) and len(found) == 2):
            raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {found}.")
        args, kwargs = found
    return args, kwargs


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


class Crossing:
    """One call of a module that has backward hooks: what the gradients at its outputs were, for the hooks at its inputs."""

    def __init__(self, module: Called, pre_hooks: list[Callable[..., Any]], hooks: list[Callable[..., Any]]) -> None:
        self.module, self.pre_hooks, self.hooks = module, pre_hooks, hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.inputs = 0
        self.watches_inputs = False

    @classmethod
    def of(cls, module: Called) -> Crossing | None:
        """The crossing that begins; None where there are no backward hooks."""
        pre_hooks = [*_global_backward_pre_hooks.values(), *module._backward_pre_hooks.values()]
        hooks = _backward_hooks(module, full=True)
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
            node.set_materialize_grads(False)

            def hook(grads: tuple[Any, ...]) -> Any:
                return self._at_outputs(places, len(results), grads)

            node.register_prehook(hook)
        return made if isinstance(result, tuple) else made[0]

    def _at_outputs(self, places: list[int], size: int, grads: tuple[Any, ...]) -> Any:
        grad_output = _spread(grads, places, size)
        for hook in self.pre_hooks:
            found = hook(self.module, grad_output)
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
            found = hook(self.module, nothing, grad_output)
            if found is not None and not (isinstance(found, tuple) and all(g is None for g in found)):
                raise RuntimeError("Backward hook for Modules where no input requires gradient should always return None or None for all gradients.")
        self.grad_outputs = None

    def _at_inputs(self, places: list[int], grads: tuple[Any, ...]) -> Any:
        if self.grad_outputs is None:  # the gradient came by another way than the outputs
            return None
        grad_input = _spread(grads, places, self.inputs)
        for hook in self.hooks:
            found = hook(self.module, grad_input, self.grad_outputs)
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


def _backward_hooks(module: Called, full: bool) -> list[Callable[..., Any]]:
    """The backward hooks of one kind, those of every module first."""
    everywhere = _global_backward_hooks.values() if _global_is_full_backward_hook is full else ()
    return [*everywhere, *(module._backward_hooks.values() if module._is_full_backward_hook is full else ())]


# ---------------------------------------------------------------------- gradients of the last operation: `register_backward_hook`


def _watch_last_operation(module: Called, args: tuple[Any, ...], result: Any) -> None:
    hooks = _backward_hooks(module, full=False)
    if not hooks:
        return
    t = result
    while not isinstance(t, Tensor):
        t = next(v for v in t.values() if isinstance(v, Tensor)) if isinstance(t, dict) else t[0]
    node: Any = t.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(_of_module(hook, module))
    reason = _not_all(args, result, node)
    if reason is not None:
        advice = "Please use register_full_backward_hook to get the documented behavior."
        warn_user(f"Using {reason} {advice}", FutureWarning)


def _of_module(hook: Callable[..., Any], module: Called) -> Callable[..., Any]:
    def call(grad_input: Any, grad_output: Any) -> Any:
        return hook(module, grad_input, grad_output)

    return call


def _not_all(args: tuple[Any, ...], result: Any, node: Any) -> str | None:
    """Why the hooks of a node do not see all gradients of a module's inputs and outputs; None where they do."""
    gone = "is deprecated and will be removed in future versions. This hook will be missing some"
    results = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(t, Tensor) for t in results):
        return f"non-full backward hooks on a Module that does not return a single Tensor or a tuple of Tensors {gone} of the grad_output."
    if not all(isinstance(t, Tensor) for t in args):
        return f"non-full backward hooks on a Module that does not take as input a single Tensor or a tuple of Tensors {gone} of the grad_input."
    if any(t.grad_fn is not None and t.grad_fn is not node for t in results):
        return f"a non-full backward hook when outputs are generated by different autograd Nodes {gone} grad_output."
    if {t.grad_fn for t in args if t.grad_fn is not None} != {before for before, _ in node.next_functions}:
        return f"a non-full backward hook when the forward contains multiple autograd Nodes {gone} grad_input."
    return None


# ---------------------------------------------------------------------- hooks of all modules


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_forward_pre_hook` for all modules."""
    return registered(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """`Module.register_forward_hook` for all modules."""
    tables = ((with_kwargs, _global_forward_hooks_with_kwargs), (always_call, _global_forward_hooks_always_called))
    return registered(_global_forward_hooks, hook, marked=[table for wanted, table in tables if wanted])


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_full_backward_pre_hook` for all modules."""
    return registered(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """`Module.register_full_backward_hook` for all modules. RuntimeError where `register_module_backward_hook` was called."""
    return _of_every_module(hook, full=True)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Deprecated: `Module.register_backward_hook` for all modules. RuntimeError where `register_module_full_backward_hook` was called."""
    return _of_every_module(hook, full=False)


def _of_every_module(hook: Callable[..., Any], full: bool) -> RemovableHandle:
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is not None and _global_is_full_backward_hook is not full:
        raise RuntimeError(_ONE_KIND.format("as a global Module hook"))
    _global_is_full_backward_hook = full
    return registered(_global_backward_hooks, hook)
