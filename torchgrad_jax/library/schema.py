"""The schema of an operator of the user's: what is written in PyTorch's notation, what annotations say, and calls held against it."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from torchgrad_jax.calling.kinds import type_name
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.runtime.device import device

_MISSING: Any = object()
_PARAMETER = re.compile(r"(?P<type>\w+(?:\(\w+!?\))?(?:\?|\[\d*\])*) (?P<name>\w+)(?:=(?P<default>.+))?$")
# What a value of a type is, as errors call it, and whether one may be.
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "Tensor": ("Tensor", lambda v: isinstance(v, Tensor)),
    "int": ("int", lambda v: isinstance(v, int)),
    "SymInt": ("int", lambda v: isinstance(v, int)),
    "float": ("float", lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)),
    "bool": ("bool", lambda v: isinstance(v, bool)),
    "str": ("str", lambda v: isinstance(v, str)),
    "Scalar": ("number", lambda v: isinstance(v, (int, float, complex))),
    "ScalarType": ("int", lambda v: isinstance(v, dtypes.dtype)),
    "Device": ("Device", lambda v: isinstance(v, (device, str))),
}
# What annotations become.
_SIMPLE: dict[Any, str] = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", dtypes.dtype: "ScalarType", device: "Device"}
_RETURNS = ("Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar")


class Argument(NamedTuple):
    """One argument. type: without what it may share or write; mutated: whether the operator writes to it."""

    name: str
    type: str
    mutated: bool
    keyword_only: bool
    default: Any
    text: str


class Schema:
    """What an operator takes and gives. name: with its namespace. text: as PyTorch shows it."""

    def __init__(self, name: str, text: str) -> None:
        taken, arrow, given = text.partition("->")
        taken, given = taken.strip(), given.strip()
        if not (arrow and taken.startswith("(") and taken.endswith(")")):
            raise ValueError(f'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got "{text}"')
        self.name, self.text = name, f"{taken} -> {given}"
        self.arguments: list[Argument] = []
        keyword_only = False
        for part in _parts(taken[1:-1]):
            if part == "*":
                keyword_only = True
            else:
                self.arguments.append(self._argument(part, keyword_only))
        self.several = given.startswith("(")
        self.returns = [re.split(r"[ (]", part)[0] for part in _parts(given[1:-1] if self.several else given)]

    def __repr__(self) -> str:
        return self.name + self.text

    def _argument(self, text: str, keyword_only: bool) -> Argument:
        found = _PARAMETER.match(text)
        plain = re.sub(r"\(.*?\)", "", found["type"]) if found else ""
        word = re.match(r"\w*", plain)
        if found is None or word is None or word[0] not in _KINDS:
            shown = self.name.rpartition(":")[2] + self.text
            raise RuntimeError(
                "\nunknown type specifier. Common valid schema types include Tensor, SymInt, int, float, bool, Scalar; for a full list, please see "
                f"https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/README.md#func :\n{shown}\n"
                f"{' ' * shown.index(text)}{'~' * len(text.partition(' ')[0])} <--- HERE\n"
            )
        default = _MISSING if found["default"] is None else _value(plain, found["default"])
        return Argument(found["name"], plain, "!" in found["type"], keyword_only, default, text)

    @property
    def mutates(self) -> bool:
        """Whether the operator writes to an argument."""
        return any(a.mutated for a in self.arguments)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call's arguments at their places, without defaults at the end. RuntimeError in PyTorch's words where they do not fit."""
        positional = [a for a in self.arguments if not a.keyword_only]
        if len(args) > len(positional):
            raise RuntimeError(
                f"{self.name}() expected at most {len(positional)} argument(s) but received {len(args)} argument(s). Declaration: {self}"
            )  # fmt: skip
        given = dict(zip([a.name for a in positional], args, strict=False)) | kwargs
        for name in given:
            if all(a.name != name for a in self.arguments):
                raise RuntimeError(f"Unknown keyword argument '{name}' for operator '{self.name}'. Schema: {self}")
        for place, a in enumerate(self.arguments):
            if a.name not in given and a.default is _MISSING:
                raise RuntimeError(f"{self.name}() is missing value for argument '{a.name}'. Declaration: {self}")
            if a.name in given and not _fits(a.type, given[a.name]):
                raise RuntimeError(self._unfit(a, place, given[a.name]))
        last = max((i for i, a in enumerate(positional) if a.name in given), default=-1)
        return (
            tuple([given.get(a.name, a.default) for a in positional[: last + 1]]),
            {a.name: given[a.name] for a in self.arguments if a.keyword_only and a.name in given},
        )

    def _unfit(self, a: Argument, place: int, value: Any) -> str:
        how = (
            f"Unable to cast {value} to Tensor" if a.type == "Tensor" else
            f"Unable to cast Python instance of type {type(value)} to C++ type '?' (#define PYBIND11_DETAILED_ERROR_MESSAGES or compile in debug "
            "mode for details)"
        )  # fmt: skip
        return (
            f"{self.name}() Expected a value of type '{_said(a.type)}' for argument '{a.name}' but instead found type '{type_name(value)}'.\n"
            f"Position: {place}\nValue: {value!r}\nDeclaration: {self}\nCast error details: {how}"
        )

    def with_defaults(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bound arguments with all defaults: what `setup_context` sees."""
        positional = [a for a in self.arguments if not a.keyword_only]
        return (
            (*args, *[a.default for a in positional[len(args) :]]),
            {a.name: kwargs.get(a.name, a.default) for a in self.arguments if a.keyword_only},
        )


def _parts(text: str) -> list[str]:
    """What commas outside of brackets separate."""
    return [part.strip() for part in re.split(r",(?![^(\[]*[)\]])", text) if part.strip()]


def _value(kind: str, text: str) -> Any:
    """A default as the value that it says."""
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    if text[0] in "\"'":
        return text[1:-1]
    if text[0] == "[":
        return [_value(kind, part) for part in _parts(text[1:-1])]
    if kind.startswith("ScalarType"):
        return next((d for d in dtypes.ALL if d.name == text), text)
    try:
        return int(text)
    except ValueError:
        return float(text)


def _fits(kind: str, value: Any) -> bool:
    if kind.endswith("?"):
        return value is None or _fits(kind[:-1], value)
    if kind.endswith("]"):
        of, _, size = kind[:-1].rpartition("[")
        return (isinstance(value, (list, tuple)) and all(_fits(of, v) for v in value)) or (bool(size) and _fits(of, value))
    return _KINDS[kind][1](value)


def _said(kind: str) -> str:
    if kind.endswith("?"):
        return f"Optional[{_said(kind[:-1])}]"
    return f"List[{_said(kind[:-1].rpartition('[')[0])}]" if kind.endswith("]") else _KINDS[kind][0]


# ---------------------------------------------------------------------- from annotations


def infer_schema(prototype_function: Callable[..., Any], /, *, mutates_args: Any, op_name: str | None = None, tags: Any = ()) -> str:
    """The schema that a function's annotations say, as text: `Tensor`, numbers, `bool`, `str`, `torch.dtype`, `torch.device`, Optional and lists of
    them. mutates_args: the names of the arguments that it writes to, or "unknown", which is all of its tensors. op_name: put before it. tags: no part
    of a schema, here as in PyTorch.

    ValueError, in PyTorch's words, for what has no annotation or another one.
    """
    try:
        signature = inspect.signature(prototype_function, eval_str=True)
    except NameError:
        signature = inspect.signature(prototype_function)
    said = f"Got func with signature {_OURS.sub('torch.', str(signature))})"
    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError("mutates_args must either be a sequence of the names of the arguments that are mutated or the string 'unknown'. ")
    unknown = {*mutates_args} - {*signature.parameters} if mutates_args != "unknown" else None
    texts: list[str] = []
    for place, p in enumerate(signature.parameters.values()):
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise ValueError(f"infer_schema(func): We do not support positional-only args, varargs, or varkwargs. {said}")
        if p.kind is p.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        texts.append(_parameter(p, place, mutates_args, said))
    if unknown:
        raise ValueError(
            f"infer_schema(func): {unknown} in mutates_args were not found in the custom op's signature. mutates_args should contain the names of "
            f"all args that the custom op mutates, or just the string 'unknown' if you don't know. {said}"
        )
    return f"{op_name or ''}({', '.join(texts)}) -> {_returned(signature.return_annotation, said)}"


def _parameter(p: inspect.Parameter, place: int, mutates: Any, said: str) -> str:
    if p.annotation is p.empty:
        raise ValueError(f"infer_schema(func): Parameter {p.name} must have a type annotation. {said}")
    kind = _kind(p.annotation)
    if kind is None:
        raise ValueError(f"infer_schema(func): Parameter {p.name} has unsupported type {_shown(p.annotation)}. {_VALID} {said}")
    if mutates == "unknown" and kind.startswith("Tensor") or p.name in mutates and mutates != "unknown":
        if not kind.startswith("Tensor"):
            raise ValueError(
                f"infer_schema(func): Parameter {p.name} is in mutable_args but only Tensors or collections of Tensors can be mutated {said}"
            )
        kind = f"Tensor(a{place}!){kind[6:]}"
    return f"{kind} {p.name}" + ("" if p.default is p.empty else f"={_default(p, said)}")


# Where our classes are, which are known as PyTorch's.
_OURS = re.compile(r"torchgrad_jax\.(?:\w+\.)+(?=Tensor|dtype|device)")
_VALID = "The valid types are: Tensor, int, float, bool, str, torch.dtype, torch.device, a number, Optional and Sequence or List of them."


def _shown(annotation: Any) -> str:
    return _OURS.sub("torch.", str(annotation))


def _default(p: inspect.Parameter, said: str) -> str:
    value = p.default
    if isinstance(value, (dtypes.dtype, device)):
        return value.name if isinstance(value, dtypes.dtype) else f'"{value}"'
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    raise ValueError(
        f"infer_schema(func): Parameter {p.name} has an unsupported default value type {type(value)}. Please file an issue on GitHub so we can "
        f"prioritize this. {said}"
    )


def _kind(annotation: Any) -> str | None:
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    origin, within = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union or origin is types.UnionType:
        if set(within) == {int, float, bool}:
            return "Scalar"
        rest = [a for a in within if a is not type(None)]
        kind = _kind(rest[0]) if len(rest) == 1 < len(within) else "Scalar" if set(rest) == {int, float, bool} else None
        return None if kind is None or kind == "Tensor[]" else f"{kind}?"
    if origin in (list, Sequence) and len(within) == 1:
        kind = _kind(within[0])
        return None if kind is None or kind.endswith("]") else f"{kind}[]"
    return None


def _returned(annotation: Any, said: str) -> str:
    if annotation is inspect.Signature.empty:
        raise ValueError(f"infer_schema(func): No return type annotation was provided. Please add one. {said}")
    if annotation is None:
        return "()"
    if typing.get_origin(annotation) is tuple:
        kinds: Iterable[Any] = [_kind(a) for a in typing.get_args(annotation)]
        if all(kind in _RETURNS for kind in kinds):
            return f"({', '.join(kinds)})"
    elif _kind(annotation) in _RETURNS:
        return _kind(annotation) or ""
    raise ValueError(f"infer_schema(func): Return has unsupported type {_shown(annotation)}. The valid types are: {', '.join(_RETURNS)}. {said}")
