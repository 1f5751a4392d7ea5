"""Calls of declared operators, each kind worked out once.

This is compiled where there is a compiler (`torchgrad_jax/_typed`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.hot import write_plainly
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import NUMBERS, Operator
from torchgrad_jax.runtime.keeping import Memo


def is_tensor(x: Any) -> bool:
    """Whether `x` is a Tensor."""
    return isinstance(x, Tensor)


class Understood:
    """Calls of one operator, each kind worked out once: which bound operator, and which arguments are its operands. Working out what the
    arguments of a call mean costs more than recording it."""

    __slots__ = ("_operator", "_dynamic", "_typed", "_by_name", "_known", "_fixed")

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        parameters = operator.schema.parameters
        self._dynamic = tuple(p.is_tensor or p.is_number for p in parameters)
        self._typed = all(self._dynamic)
        self._by_name = {p.name: i for i, p in enumerate(parameters)}
        self._fixed = not any(p.type in ("Tensor[]", "int...") for p in parameters)
        self._known = Memo()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The BoundOperator and the operands. TypeError for arguments that do not fit the schema."""
        if not self._fixed:
            return self._operator.parse(args, kwargs, is_tensor)
        try:
            key = self._key(args, kwargs)
            found = self._known.get(key)
        except (TypeError, KeyError):  # an argument without a hash, or of another name
            return self._operator.parse(args, kwargs, is_tensor)
        if found is not None:
            bound, places = found
            return bound, [args[p] if type(p) is int else kwargs[p] for p in places]
        bound, operands = self._operator.parse(args, kwargs, is_tensor)
        places = self._places(args, kwargs)
        if len(places) == len(operands):  # else a default is an operand
            self._known.keep(key, (bound, places))
        return bound, operands

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if self._typed:
            return (len(args), *map(type, args), *kwargs, *map(type, kwargs.values()))
        # 1, 1.0 and True are equal, but not the same argument: static ones are told apart by type, too.
        key: list[Any] = [type(a) if dynamic else (type(a), a) for a, dynamic in zip(args, self._dynamic, strict=False)]
        key.append(len(args))
        for name, a in kwargs.items():
            key += (name, type(a) if self._dynamic[self._by_name[name]] else (type(a), a))
        return tuple(key)

    def _places(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Where the operands stand in a call, in the schema's order: positions and keywords."""
        found: list[Any] = []
        for i, p in enumerate(self._operator.schema.parameters):
            if self._dynamic[i]:
                value = args[i] if i < len(args) else kwargs.get(p.name)
                if isinstance(value, Tensor) and not p.is_number or type(value) in NUMBERS:
                    found.append(i if i < len(args) else p.name)
        return tuple(found)


def written_by(understood: Understood) -> Callable[..., Tensor]:
    """The function that writes an operator's result into its first operand."""

    def write(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        bound, operands = understood((self, *args), kwargs)
        return write_plainly(bound, tuple(operands))

    return write
