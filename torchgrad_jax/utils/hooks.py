"""`torch.utils.hooks`: the handle that removes a hook, hooks and pickling, the backward hooks of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torchgrad_jax.core.node import RemovableHandle
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.nn.modules.calling import Crossing
from torchgrad_jax.runtime.user_code import warn_user

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a hook on a tensor: that it is not pickled with the tensor is known, and nobody is warned."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined] - functions have attributes
    return f


def warn_if_has_hooks(tensor: Tensor) -> None:
    """Warn of each hook on the tensor that is not marked by `unserializable_hook`."""
    for hook in (tensor._backward_hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warn_user(
                f"backward hook {hook!r} on tensor will not be serialized.  If this is expected, you can decorate the function with "
                "@torch.utils.hooks.unserializable_hook to suppress this warning"
            )


class BackwardHook:
    """The backward hooks of one call of a module: of functions (module, grad_input, grad_output), and of those before, (module, grad_output)."""

    def __init__(self, module: Any, user_hooks: Iterable[Callable[..., Any]], user_pre_hooks: Iterable[Callable[..., Any]]) -> None:
        self.module, self.user_hooks, self.user_pre_hooks = module, user_hooks, user_pre_hooks
        self._crossing = Crossing(module, list(user_pre_hooks), list(user_hooks))

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to call the module's `forward` with."""
        return self._crossing.enter(args)

    def setup_output_hook(self, args: Any) -> Any:
        """What `forward` returned, to be used in its place."""
        return self._crossing.leave(args)
