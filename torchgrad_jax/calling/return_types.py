"""The classes of results that have names: `torch.return_types.max` and its like. Functions and methods of one name share one."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NoReturn

from torchgrad_jax.runtime.pickles import in_pickles


class _Shown(type):
    """The class of these classes: they say PyTorch's name, and are found by pickle in our module."""

    def __repr__(cls) -> str:
        return f"<class 'torch.return_types.{cls.__name__}'>"


class ReturnType(tuple[Any, ...], metaclass=_Shown):
    """A tuple whose elements have names: ``values, indices = x.max(0)`` or ``x.max(0).values``. TypeError for another number of elements."""

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()
    n_fields = n_sequence_fields = n_unnamed_fields = 0

    def __new__(cls, sequence: Iterable[Any], dict: dict[str, Any] | None = None) -> Any:
        if not isinstance(sequence, Iterable):
            raise TypeError("constructor requires a sequence")
        if dict is not None and not isinstance(dict, builtins.dict):
            raise TypeError(f"torch.return_types.{cls.__name__}() takes a dict as second arg, if any")
        found = tuple.__new__(cls, sequence)
        if len(found) != cls.n_fields:
            raise TypeError(f"torch.return_types.{cls.__name__}() takes a {cls.n_fields}-sequence ({len(found)}-sequence given)")
        return found

    def __repr__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in zip(self.__match_args__, self, strict=True)]
        return f"torch.return_types.{type(self).__name__}(\n" + ",\n".join(parts) + ")"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"'torch.return_types.{type(self).__name__}' object has no attribute '{name}'")

    def __reduce__(self) -> Any:
        return _made, (type(self).__name__, self.__match_args__, tuple(self))


known: dict[str, type[ReturnType]] = {}
# Told of each class when it is made.
listeners: list[Callable[[type[ReturnType]], None]] = []


def return_type(name: str, fields: Sequence[str]) -> Any:
    """The one class of this name, made with these fields when it is first asked for."""
    found = known.get(name)
    if found is None:
        fields = tuple(fields)
        content: dict[str, Any] = {"__slots__": (), "__module__": "torchgrad_jax.return_types", "__match_args__": fields}
        content |= {"n_fields": len(fields), "n_sequence_fields": len(fields)}
        content |= {field: property(itemgetter(i)) for i, field in enumerate(fields)}
        found = known[name] = _Shown(name, (ReturnType,), content)
        for listener in listeners:
            listener(found)
    return found


@in_pickles("_rebuild_return_type")
def _made(name: str, fields: tuple[str, ...], content: tuple[Any, ...]) -> Any:
    """What pickle and copy call."""
    return return_type(name, fields)(content)
