"""Operator schemas: ``"sum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)"``.

Types: Tensor, Tensor[] (a sequence of them), Scalar (a Python number, given to programs at run time), Tensor|Scalar, Index (a run-time int
that keeps its type), and the static ones int, float, number, bool, str, int[], dtype, any. A number is a float that nodes show in the type in which
it was given. `?` after a type allows None. ``int...`` is a sequence of ints that may also be spelt as separate arguments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.declaration import dtypes

REQUIRED: Any = object()


class Parameter(NamedTuple):
    """One parameter of a schema."""

    name: str
    type: str
    optional: bool
    default: Any
    keyword_only: bool

    @property
    def is_number(self) -> bool:
        """Whether only a run-time number may stand here."""
        return self.type in ("Scalar", "Index")

    @property
    def is_tensor(self) -> bool:
        """Whether a Tensor may stand here."""
        return self.type in ("Tensor", "Tensor[]", "Tensor|Scalar")


class Schema:
    """A parsed schema: the operator's name and its parameters in order."""

    __slots__ = ("name", "parameters", "by_name", "text", "positional")

    def __init__(self, text: str) -> None:
        name, _, rest = text.partition("(")
        self.text, self.name = text, name
        keyword_only = False
        found: list[Parameter] = []
        for part in _split(rest.rpartition(")")[0]):
            if part == "*":
                keyword_only = True
                continue
            kind, _, named = part.partition(" ")
            label, equals, default = named.partition("=")
            optional = kind.endswith("?")
            value = _literal(default) if equals else REQUIRED
            found.append(Parameter(label, kind.rstrip("?"), optional, value, keyword_only))
        self.parameters = tuple(found)
        self.positional = tuple(p for p in found if not p.keyword_only)
        self.by_name = {p.name: p for p in found}

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The value of every parameter in order. TypeError with PyTorch's text for a wrong number or name."""
        positional = self.positional
        if len(args) > len(positional) or (positional and positional[-1].type == "int..." and len(args) == len(positional)):
            args = self._gather(args)
        values = list(args)
        for p in self.parameters[len(values) :]:
            if p.name in kwargs:
                values.append(kwargs[p.name])
            elif p.name == "self" and "input" in kwargs:
                values.append(kwargs["input"])
            elif p.name == "dim" and "axis" in kwargs:
                values.append(kwargs["axis"])
            elif p.default is REQUIRED:
                raise TypeError(f'{self.name}() missing 1 required positional arguments: "{_public(p.name)}"')
            else:
                values.append(p.default)
        if kwargs:
            self._refuse_unknown(kwargs, len(args))
        return values

    def _gather(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """``view(2, 3)`` means ``view((2, 3))``."""
        last = len(self.positional) - 1
        if self.positional and self.positional[-1].type == "int...":
            tail = args[last:]
            if len(tail) == 1 and isinstance(tail[0], (tuple, list)):
                return args
            return (*args[:last], tail)
        count = len(self.positional)
        raise TypeError(f"{self.name}() takes {count} positional argument{'s' * (count != 1)} but {len(args)} were given")

    def _refuse_unknown(self, kwargs: dict[str, Any], given: int) -> None:
        for name in kwargs:
            index = next((i for i, p in enumerate(self.parameters) if p.name == name), None)
            if index is None and not (name == "input" and "self" in self.by_name) and not (name == "axis" and "dim" in self.by_name):
                raise TypeError(f"{self.name}() got an unexpected keyword argument '{name}'")
            if (index is not None and index < given) or (name == "input" and given):
                raise TypeError(f"{self.name}() got multiple values for argument '{name}'")


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [p for p in [*parts, text[start:].strip()] if p]


def _literal(text: str) -> Any:
    import ast

    return ast.literal_eval(text)


def _public(name: str) -> str:
    return "input" if name == "self" else name


NUMBERS = (float, int, bool, complex)


def plain_number(x: Any) -> Any:
    """A number whose class is not Python's own (NumPy's scalars, enums) as one whose class is; anything else as it is."""
    if isinstance(x, np.generic):
        return x.item()
    if type(x) in NUMBERS:
        return x
    kind: Any = next((k for k in NUMBERS if isinstance(x, k)), None)
    return x if kind is None else kind(x)


def real_number(number: Any, dtype: str = "double") -> float:
    """A number as a real one. RuntimeError, which names the C++ type, for one with an imaginary part."""
    if isinstance(number, complex):
        if number.imag:
            raise RuntimeError(f"value cannot be converted to type {dtype} without overflow")
        number = number.real
    return float(number)


_INTS = (int, np.integer)
_WANTED = {
    "int": "int", "float": "float", "bool": "bool", "str": "str", "int[]": "tuple of ints", "int...": "tuple of ints",
    "dtype": "torch.dtype", "Scalar": "Number", "Index": "int", "Tensor": "Tensor", "Tensor|Scalar": "Tensor", "Tensor[]": "tuple of Tensors",
    "number": "Number",
}  # fmt: skip


def wrong_type(schema: Schema, p: Parameter, value: Any, position: int) -> TypeError:
    """PyTorch's TypeError for an argument of the wrong type."""
    given = type(value).__name__
    where = "" if p.keyword_only else f" (position {position})"
    return TypeError(f"{schema.name}(): argument '{_public(p.name)}'{where} must be {_WANTED.get(p.type, p.type)}, not {given}")


def static(schema: Schema, p: Parameter, value: Any, position: int) -> Any:
    """A static argument in its canonical, hashable form. TypeError where the type is wrong."""
    kind = p.type
    if value is None and (p.optional or p.default is None):
        return None
    if kind == "any":
        return value
    if kind == "int" and not isinstance(value, bool):
        found = _as_int(value)
    elif kind in ("int[]", "int..."):
        found = _as_ints(value)
    elif kind == "bool" and isinstance(value, (bool, np.bool_)):
        found = bool(value)
    elif kind == "float" and isinstance(value, (float, int, np.number)) and not isinstance(value, bool):
        found = float(value)
    elif kind == "number" and isinstance(value, (*NUMBERS, np.number, np.bool_)):
        found = plain_number(value)
    elif kind == "str" and isinstance(value, str):
        found = value
    elif kind == "dtype" and isinstance(value, dtypes.dtype):
        found = value.np
    elif kind == "float" and value is not None and not isinstance(value, (bool, str)) and hasattr(value, "__float__"):
        found = float(value)  # a 0-dim tensor
    else:
        found = None
    if found is None:
        raise wrong_type(schema, p, value, position)
    return found


def _as_int(value: Any) -> int | None:
    if isinstance(value, _INTS):
        return int(value)
    if hasattr(value, "__index__") and not isinstance(value, str):
        try:
            return value.__index__()
        except TypeError:
            return None
    return None


def _as_ints(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, (tuple, list)):
        found = [_as_int(v) for v in value]
        ints = tuple([n for n in found if n is not None])
        return ints if len(ints) == len(found) else None
    one = None if isinstance(value, bool) else _as_int(value)
    return None if one is None else (one,)
