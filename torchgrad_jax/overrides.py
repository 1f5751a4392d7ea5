"""`torch.overrides`: classes and modes that answer calls of the public functions, and what there is to answer."""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from torchgrad_jax._ops import OpOverload, OpOverloadPacket
from torchgrad_jax.calling.for_users import handle_torch_function, has_torch_function, has_torch_function_unary, has_torch_function_variadic
from torchgrad_jax.calling.overrides import NEVER_ASKED, enter_mode, leave_mode, nowrap, publics, state
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime import lazy as _lazy
from torchgrad_jax.runtime.recorder import FUNCTIONS as _FUNCTIONS

__all__ = [
    "BaseTorchFunctionMode", "TorchFunctionMode", "enable_reentrant_dispatch", "get_default_nowrap_functions", "get_ignored_functions",
    "get_overridable_functions", "get_testing_overrides", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property", "redispatch_function", "resolve_name", "wrap_torch_function",
]  # fmt: skip


# ---------------------------------------------------------------------- modes


class TorchFunctionMode:
    """Within ``with mode:`` every public function is answered by ``mode.__torch_function__(func, types, args, kwargs)``.

    Modes nest: the innermost is asked first, and what it calls itself is asked of those outside it. A mode holds in the thread that entered it.
    """

    def __init__(self) -> None:
        pass

    def __torch_function__(self, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """The answer to a call of `func`. NotImplementedError unless a subclass defines it."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        enter_mode(self)
        return self

    def __exit__(self, *exc: object) -> None:
        leave_mode()


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls each function as if there were none."""

    def __torch_function__(self, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """See TorchFunctionMode."""
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> Any:
    """The innermost active mode of this thread; None if there is none."""
    return state.modes[-1] if state.modes else None


def _get_current_function_mode_stack() -> list[Any]:
    """The active modes of this thread, the innermost last."""
    return list(state.modes)


# ---------------------------------------------------------------------- for functions of the user's own


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a function of the user's own that looks for overrides among what ``dispatcher(*args, **kwargs)`` gives."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def redispatch_function(func: Callable[..., Any], types: Any, args: Iterable[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """Call `func` from within a `__torch_function__` without asking for `func` itself: what it calls is asked for.

    What the library's own functions give of a class's tensors are then plain Tensors.
    """
    state.once = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        state.once = False


def enable_reentrant_dispatch() -> NoReturn:
    """RuntimeError, always: there is no `__torch_dispatch__` here, within which alone it has a meaning."""
    raise RuntimeError("Accessing torch dispatch state outside of '__torch_dispatch__' is not allowed.")


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a Tensor, or of a class with `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


# ---------------------------------------------------------------------- what there is to answer


def resolve_name(f: Any) -> str | None:
    """The dotted name of a public function as handlers are given it, such as ``torch.Tensor.add``; None for any other object.

    An operator of `torch.ops` is named without that: ``aten.mul``.
    """
    if isinstance(f, (OpOverload, OpOverloadPacket)):
        return str(f)
    public = publics.get(f) if callable(f) else None
    return None if public is None else public.name


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether `func` is a method of Tensor, or the `__get__` of an attribute."""
    public = publics.get(func)
    return public is not None and public.name.startswith("torch.Tensor.")


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that classes are asked for, by the namespace they are in; an attribute of Tensor stands for itself, with its `__get__`."""
    import torchgrad_jax

    spaces = {
        "torch": torchgrad_jax, "torch.functional": torchgrad_jax, "torch.Tensor": Tensor, "torch.nn.functional": torchgrad_jax.nn.functional,
        "torch.linalg": torchgrad_jax.linalg, "torch.special": torchgrad_jax.special,
    }  # fmt: skip
    _lazy.load(torchgrad_jax.nn.functional)
    found: dict[Any, list[Callable[..., Any]]] = defaultdict(list)
    for func, public in publics.items():
        space, _, name = public.name.rpartition(".")
        if public.by_type and space in spaces:
            found[spaces[space]].append(func)
        elif name == "__get__":
            found[func.__self__].append(func)
    return found


def get_ignored_functions() -> set[Callable[..., Any]]:
    """Public functions that classes are not asked for: factories, whose arguments are data, and settings."""
    import torchgrad_jax

    never = {getattr(torchgrad_jax, name) for name in NEVER_ASKED if hasattr(torchgrad_jax, name)}
    return never | {func for func, public in publics.items() if not public.by_type}


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each overridable function one of its signature that returns -1."""
    return {func: _minus_one(func) for functions in get_overridable_functions().values() for func in functions}


def _minus_one(func: Any) -> Callable[..., int]:
    def override(*args: Any, **kwargs: Any) -> int:
        return -1

    if isinstance(func, _FUNCTIONS):
        override.__signature__ = inspect.signature(func)  # type: ignore[attr-defined] - what inspect looks for
    return override


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """The attributes whose content the default `__torch_function__` gives as it is: it does not belong to the subclass."""
    return nowrap()
