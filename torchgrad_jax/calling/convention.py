"""How one function may be called: its signatures together, and calls spelt as our implementation understands them.

Calls are looked at when their types are new: a guard remembers which combinations of types were found to be in order (`overrides.guard`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib import resources
from types import CodeType
from typing import Any

from torchgrad_jax.calling.binding import bind, check_elements, invalid_combination, wrong_kind
from torchgrad_jax.calling.converting import converted, default_of
from torchgrad_jax.calling.signature import Parameter, Signature, parts
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.user_code import warn_once

_ANY_NUMBER = 1 << 30
_NAMESPACES = {"torch.linalg": "linalg_", "torch.special": "special_", "torch.fft": "fft_"}


@functools.cache
def _table() -> dict[str, list[str]]:
    """The lines of the table by the name of the function."""
    found: dict[str, list[str]] = {}
    text = resources.files("torchgrad_jax.calling").joinpath("signatures.txt").read_text()
    for line in text.splitlines():
        found.setdefault(line.partition("(")[0].rpartition(" ")[2], []).append(line)
    return found


def convention(name: str) -> Convention | None:
    """That of the public function with a dotted name such as ``torch.Tensor.sum``; None where the table does not tell."""
    lines = _table().get(name.removeprefix("torch.functional.").removeprefix("torch."))
    if lines is None:
        return None
    return PythonConvention(name, lines) if lines[0].startswith("python") else Convention(name, lines)


class Convention:
    """The signatures of a function. said: what PyTorch's errors call it."""

    def __init__(self, name: str, lines: list[str]) -> None:
        namespace, _, short = name.rpartition(".")
        self.method = namespace == "torch.Tensor"
        self.name = name
        self.said = _NAMESPACES.get(namespace, "") + short
        self.signatures = [Signature(line.partition("(")[2][:-1], line.startswith("deprecated ")) for line in lines]
        self.listed = [s for s in self.signatures if not s.deprecated]
        self._names: tuple[frozenset[str], int] | None = None

    def meant(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Signature, dict[str, Any]]:
        """The signature that a call fits, and the argument of each of its parameters. TypeError with PyTorch's text where it fits none."""
        for s in self.signatures:
            found = bind(self.said, s, args, kwargs)
            if isinstance(found, dict):
                check_elements(self.said, s, found)
                if s.deprecated:
                    self._warn(s)
                return s, found
        raise self._refusal(args, kwargs)

    def _refusal(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
        given = len(args) + len(kwargs)
        if len(self.signatures) == 1 and not self.signatures[0].parameters:
            shown = self.name.removeprefix("torch.") if self.method else self.name
            return TypeError(f"{shown}() takes no {'keyword arguments' if not args else f'arguments ({len(args)} given)'}")
        plausible = [s for s in self.listed if len(self.signatures) == 1 or s.fewest <= given <= len(s.parameters)]
        if len(plausible) == 1:
            error = bind(self.said, plausible[0], args, kwargs)
            assert isinstance(error, TypeError)
            return error
        return invalid_combination(self.said, self.listed, args, kwargs)

    def _warn(self, used: Signature) -> None:
        others = "".join(f"\n\t{self.said}{s}" for s in self.listed)
        text = f"{self.said} is deprecated:\n\t{self.said}{used}\nConsider using one of the following signatures instead:{others}"
        warn_once("This overload of ", text)

    def respelt(
        self, implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
        """The call as the implementation understands it, and whether all calls of these types are in order as they are. TypeError where PyTorch
        does not take it."""
        own: tuple[Any, ...] = ()
        if self.method:
            own, args = _receiver(self.said, args), args[1:]
        signature, found = self.meant(args, kwargs)
        if signature.deprecated:
            signature = next(s for s in self.listed if found.keys() <= s.by_name.keys())
        return self._spelt(implementation, signature, found, own, args, kwargs)

    def _spelt(
        self, implementation: Callable[..., Any], signature: Signature, found: dict[str, Any], own: tuple[Any, ...], args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[tuple[Any, ...], dict[str, Any], bool]:  # fmt: skip
        names, most = self._understood(implementation)
        values = {name: self._converted(signature.by_name[name], value) for name, value in found.items()}
        same = all(values[name] is found[name] for name in found)
        in_order = all(found.get(p.name, p) is a for p, a in zip(signature.parameters, args, strict=False)) or signature.gathers
        if same and in_order and names.issuperset(kwargs) and len(own) + len(args) <= most:
            return (*own, *args), kwargs, not any(_is_value(signature, name, value) for name, value in found.items())
        return *_positionally(signature, values, names, most - len(own), own), False

    def _converted(self, p: Parameter, value: Any) -> Any:
        return converted(p, value)

    def _understood(self, implementation: Callable[..., Any]) -> tuple[frozenset[str], int]:
        """The names that the implementation knows, and how many arguments it takes by position."""
        if self._names is None:
            schema = getattr(implementation, "schema", None)
            if schema is not None:
                names = {*schema.by_name, "out"} | ({"input"} if "self" in schema.by_name else set())
                gathers = bool(schema.positional) and schema.positional[-1].type == "int..."
                most = _ANY_NUMBER if gathers else len(schema.positional)
            else:
                code: CodeType = getattr(implementation, "casts_for", implementation).__code__  # not what `__signature__` says: that is PyTorch's
                names = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
                if code.co_flags & inspect.CO_VARKEYWORDS:  # it knows all, by whichever way; but a method's first argument has no name
                    names.update(*(s.by_name for s in self.listed))
                    names -= {"input", "self"} - set(code.co_varnames)
                most = _ANY_NUMBER if code.co_flags & inspect.CO_VARARGS else code.co_argcount
            self._names = frozenset(names), most
        return self._names


class PythonConvention(Convention):
    """That of a function which PyTorch has in Python: arguments are Python's to bind, and some of them are demanded to be of a type."""

    def __init__(self, name: str, lines: list[str]) -> None:
        super().__init__(name, lines)
        shown = [f"{p.rpartition(' ')[2]}" if " = " not in p else " = ".join((p.partition(" = ")[0].rpartition(" ")[2], p.partition(" = ")[2]))
                 for p in parts(lines[0].partition("(")[2][:-1])]  # fmt: skip
        self._several = any(p[0] == "*" and p != "*" for p in shown)
        scope: dict[str, Any] = {}
        # Python's own errors for a wrong number or name of arguments are PyTorch's.
        exec(f"def {self.said}({', '.join(['self'] * self.method + shown)}): return locals()", scope)
        self.binds = scope[self.said]
        # The function that PyTorch passes the arguments on to, which is the one to complain.
        self._said_by = lines[0].partition(" ")[0].partition(":")[2] or self.said
        self.binds.__qualname__ = f"{'Tensor.' * self.method}{self.said}"

    def respelt(
        self, implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
        """See Convention."""
        bound = self.binds(*args, **kwargs)
        signature, own = self.signatures[0], args[: int(self.method)]
        positional = [p.name for p in signature.parameters if not p.keyword_only]
        given = {name: bound[name] for name in (*positional[: len(args) - len(own)], *kwargs) if name in signature.by_name}
        error = wrong_kind(self._said_by, signature, given, kwargs)
        if error is not None:
            raise error
        if self._several or not given.keys() >= kwargs.keys():
            return args, kwargs, True
        return self._spelt(implementation, signature, given, own, args[len(own) :], kwargs)

    def _converted(self, p: Parameter, value: Any) -> Any:
        return None if value is None else converted(p, value)  # what None means is the function's to say


def _receiver(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if not args:
        raise TypeError(f"unbound method TensorBase.{name}() needs an argument")
    if not isinstance(args[0], Tensor):
        raise TypeError(f"descriptor '{name}' for 'torch._C.TensorBase' objects doesn't apply to a '{type(args[0]).__name__}' object")
    return args[:1]


def _is_value(signature: Signature, name: str, value: Any) -> bool:
    """Whether a tensor stands for a number, which only one without dimensions may."""
    kind = signature.by_name[name].kind
    if kind in ("Tensor", "Tensor|Scalar", "Tensor[]", "any") or kind[0] == ".":
        return False
    return isinstance(value, Tensor) or (isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value))


def _positionally(
    signature: Signature, found: dict[str, Any], names: frozenset[str], most: int, own: tuple[Any, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments by position as far as positions go, those of other names by keyword. most: how many may be given by position."""
    positional = signature.parameters[: min(signature.most_positional, most)]
    last = max((i for i, p in enumerate(positional) if p.name in found and p.name not in names), default=-1)
    while last + 1 < len(positional) and positional[last + 1].name in found:
        last += 1
    values = [found[p.name] if p.name in found else default_of(p) for p in positional[: last + 1]]
    rest = {p.name: found[p.name] for p in signature.parameters[last + 1 :] if p.name in found}
    return (*own, *values), rest
