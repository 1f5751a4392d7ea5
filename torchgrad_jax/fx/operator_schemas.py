"""`torch.fx.operator_schemas`: the arguments of a call, named as the signature of what is called has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["ArgsKwargsPair", "normalize_function", "normalize_module"]


class ArgsKwargsPair(NamedTuple):
    """Positional arguments, and arguments by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: Any = None,
    kwarg_types: Any = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call of a function as its signature has them, with defaults, by name where `normalize_to_only_use_kwargs`. None where there
    is no signature, or the arguments do not fit it. arg_types, kwarg_types: not needed."""
    try:
        bound = inspect.signature(target).bind(*args, **(kwargs or {}))
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    if not normalize_to_only_use_kwargs:
        return ArgsKwargsPair(bound.args, bound.kwargs)
    kinds = {name: parameter.kind for name, parameter in bound.signature.parameters.items()}
    if inspect.Parameter.VAR_POSITIONAL in kinds.values() or inspect.Parameter.POSITIONAL_ONLY in kinds.values():
        return None
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        named.update(value if kinds[name] is inspect.Parameter.VAR_KEYWORD else {name: value})
    return ArgsKwargsPair((), named)


def normalize_module(
    root: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, normalize_to_only_use_kwargs: bool = False
) -> ArgsKwargsPair | None:
    """`normalize_function` of the `forward` of the submodule of `root` with the name `target`."""
    return normalize_function(root.get_submodule(target).forward, args, kwargs, None, None, normalize_to_only_use_kwargs)
