"""Arguments and results: the tensors among them, in order, and what they stand in."""

from __future__ import annotations

import enum
from collections.abc import Set
from operator import is_
from typing import Any

import numpy as np

from torchgrad_jax.core.tensor import Size, Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.observing.differences import shown
from torchgrad_jax.runtime.value import Aval

# What is told by its value: nobody can change it.
BY_VALUE = (int, str, bool, type(None), bytes, complex, Size, dtypes.dtype, device, range, np.dtype, np.generic, enum.Enum, type(...))


class Refused(Exception):
    """What a function was given or returned cannot be told from other such: why."""


def told_by(value: Any) -> Any:
    """What tells a number from others, the sign of its zeros too."""
    return repr(value) if type(value) is complex else value.tobytes() if isinstance(value, np.generic) else value


class Same:
    """An object, equal to itself only."""

    __slots__ = ("object",)

    def __init__(self, object: Any) -> None:
        self.object = object

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.object is self.object

    def __hash__(self) -> int:
        return id(self.object)


def key_of(given: Any, tensors: list[Tensor], objects: list[Any]) -> Any:
    """What tells an argument from others, its contents aside. Its tensors are appended to `tensors`, what is told by identity to `objects`.

    Refused for arrays of NumPy's, which others may change.
    """
    kind = type(given)
    if kind is Tensor or isinstance(given, Tensor):
        tensors.append(given)
        node = given._node if given._view is None else given._present_node()
        told = given._aval, given.requires_grad, node is None, kind
        return (*told, *[(name, _attribute_key(value, objects)) for name, value in given.__dict__.items()]) if given.__dict__ else told
    if kind is float:
        return _value_key(given)
    if kind is list or kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return kind, *[key_of(part, tensors, objects) for part in given]
    if kind is dict:
        return kind, tuple(given), *[key_of(part, tensors, objects) for part in given.values()]
    if isinstance(given, BY_VALUE):
        return _value_key(given)
    if kind is slice:
        return kind, *[key_of(part, tensors, objects) for part in (given.start, given.stop, given.step)]
    if isinstance(given, np.ndarray):
        raise Refused("an argument is a NumPy array, whose content may change: pass a tensor")
    objects.append(given)
    return Same(given)


def _value_key(value: Any) -> Any:
    return type(value), value.hex() if type(value) is float else told_by(value)


def _attribute_key(value: Any, objects: list[Any]) -> Any:
    if type(value) is float or isinstance(value, BY_VALUE):
        return _value_key(value)
    objects.append(value)
    return Same(value)


def containers_in(given: Any) -> list[tuple[Any, Any]]:
    """The lists and dicts among what is given, and those of its tensors' attributes, each with a copy of it."""
    kind = type(given)
    if isinstance(given, Tensor):
        return [(given.__dict__, given.__dict__.copy())]
    parts: Any = given
    if kind is dict or kind is list:
        own = [(given, parts.copy())]
    elif isinstance(given, tuple):
        own = []
    else:
        return []
    return own + [found for part in (parts.values() if kind is dict else parts) for found in containers_in(part)]


def same_items(a: Any, b: Any) -> bool:
    """Whether two lists or dicts have the same objects in the same order."""
    if type(a) is list:
        return len(a) == len(b) and all(map(is_, a, b))
    return len(a) == len(b) and all(map(is_, a, b)) and all(map(is_, a.values(), b.values()))


def changed(was: Any, now: Any) -> str:
    """In what two keys of arguments first differ, in words; "" where they do not."""
    if not (type(was) is type(now) is tuple and was and now):
        return "" if was == now else f"an argument was {_said(was)} and is {_said(now)}"
    if isinstance(was[0], Aval) and isinstance(now[0], Aval):
        if was[0] is not now[0]:
            return f"a tensor among the arguments was {shown(was[0])} and is {shown(now[0])}"
        return "" if was == now else f"requires_grad, grad_fn or class of an argument of shape {list(now[0].shape)} is not what it was"
    if was[0] is now[0] is float:
        return "" if was == now else f"an argument was {float.fromhex(was[1])} and is {float.fromhex(now[1])}"
    if isinstance(was[0], type) and isinstance(now[0], type) and was[0] is not now[0]:
        return f"an argument was of type {was[0].__name__} and is of type {now[0].__name__}"
    if len(was) != len(now):
        return f"there were {len(was) - 1} arguments, or parts of one, and are {len(now) - 1}"
    return next((found for a, b in zip(was, now, strict=True) if (found := changed(a, b))), "")


def _said(part: Any) -> str:
    return f"another {type(part.object).__name__}" if isinstance(part, Same) else "a tensor" if isinstance(part, Aval) else repr(part)


class Layout:
    """What a result consists of, its tensors aside. kind: its type, None for a tensor; parts: Layouts, or what it is; keys: of a dict."""

    __slots__ = ("kind", "parts", "keys")

    def __init__(self, kind: Any, parts: Any, keys: tuple[Any, ...] = ()) -> None:
        self.kind, self.parts, self.keys = kind, parts, keys

    def filled(self, leaves: list[Any]) -> Any:
        """The result that has these tensors."""
        kind = self.kind
        if kind is None:
            return leaves[self.parts]
        if kind is Same:
            return self.parts
        made = [part.filled(leaves) for part in self.parts]
        if kind is dict:
            return dict(zip(self.keys, made, strict=True))
        return made if kind is list else tuple(made) if kind is tuple else tuple.__new__(kind, made)


def layout_of(result: Any, tensors: list[Tensor], given: Set[int] = frozenset(), reached: Set[int] = frozenset()) -> Layout:
    """The Layout of a result, whose tensors are appended to `tensors`. Refused where one could hide in it, and where a list or dict in it is one that
    the function was given. given, reached: those, and those that are watched, by their ids."""
    if id(result) in reached:
        return Layout(Same, result)
    if id(result) in given:
        raise Refused("it returns a list or a dict that it was given: return a new one")
    if isinstance(result, Tensor):
        tensors.append(result)
        return Layout(None, len(tensors) - 1)
    kind = type(result)
    if kind is list or isinstance(result, tuple) and not isinstance(result, Size):
        return Layout(kind, [layout_of(part, tensors, given, reached) for part in result])
    if kind is dict:
        named: Any = result
        return Layout(kind, [layout_of(part, tensors, given, reached) for part in named.values()], tuple(named))
    if kind is float or isinstance(result, BY_VALUE):
        return Layout(Same, result)
    raise Refused(f"it returns an object of type {kind.__name__}: return tensors, numbers, and tuples, lists and dicts of them")
