"""For functions of the user's own: whether a call is to be answered by `__torch_function__`, and having it answered."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from torchgrad_jax.calling.overrides import Public, ask, overloaded, publics, state
from torchgrad_jax.calling.overrides import overrides as _overrides

__all__ = ["handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"]


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is active, or an argument's class has a `__torch_function__` of its own."""
    relevant = tuple(relevant_args)
    if state.passed_over() or state.everything or not relevant:
        return False
    return bool(state.modes) or (not state.subclasses and any(_overrides(type(a)) for a in relevant))


def has_torch_function_unary(tensor: Any) -> bool:
    """`has_torch_function` of one argument."""
    return has_torch_function((tensor,))


def has_torch_function_variadic(*tensors: Any) -> bool:
    """`has_torch_function` of the arguments given."""
    return has_torch_function(tensors)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Have the call of `public_api` answered by a mode or by the classes of `relevant_args`. TypeError where all of them decline."""
    asked = [] if state.everything else overloaded((list(relevant_args),), tensors_too=True)
    return ask(public_api, asked, args, kwargs)


def asking(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of `torch`, whose calls are answered by `__torch_function__` where an argument has one: numbers of programs that are recorded."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return handle_torch_function(call, args, *args) if has_torch_function(args) else function(*args)

    return call


def make_known(func: Callable[..., Any], name: str) -> None:
    """Let those who are asked know `func`, which asks them itself, as the public function of this dotted name."""
    public = Public(name, in_python=True)
    public.func = func
    publics[func] = public
