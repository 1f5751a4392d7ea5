"""Python says of a call that does not fit which function was called, by the name of the class that has it."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any


def own_methods(classes: Iterable[Any], names: tuple[str, ...], of: frozenset[str]) -> None:
    """Give classes methods of their own in place of those that they have from bases called `of`, which are not known by these names elsewhere."""
    for cls in classes:
        for name in names:
            owner = next((base for base in cls.__mro__ if name in vars(base)), cls)
            method = vars(owner).get(name)
            if owner is not cls and owner.__name__ in of and isinstance(method, types.FunctionType):
                setattr(cls, name, _renamed(method, f"{cls.__qualname__}.{name}"))


def _renamed(method: types.FunctionType, name: str) -> types.FunctionType:
    made = types.FunctionType(method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__)
    made.__kwdefaults__, made.__annotations__ = method.__kwdefaults__, method.__annotations__
    made.__doc__, made.__module__, made.__qualname__ = method.__doc__, method.__module__, name
    return made


def give_methods(cls: type, parts: Iterable[type]) -> None:
    """Let the methods of `parts`, of which `cls` consists, bear its name."""
    for part in parts:
        for name, method in vars(part).items():
            if isinstance(method, types.FunctionType) and method.__module__ == part.__module__:
                method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
