"""How one function may be called: its signatures together, and calls spelt as our implementation understands them.

Calls are looked at when their types are new: a guard remembers which combinations of types were found to be in order (`overrides.guard`).
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from importlib import resources
from typing import Any

from torchgrad_jax.runtime.checks import warn_user
from torchgrad_jax.tensor.calling.binding import bind, check_elements, invalid_combination
from torchgrad_jax.tensor.calling.signature import Signature
from torchgrad_jax.tensor.tensor import Tensor

_NAMESPACES = {"torch.linalg": "linalg_", "torch.special": "special_", "torch.fft": "fft_"}


@functools.cache
def _table() -> dict[str, list[str]]:
    """The lines of the table by the name of the function."""
    found: dict[str, list[str]] = {}
    text = resources.files("torchgrad_jax.tensor.calling").joinpath("signatures.txt").read_text()
    for line in text.splitlines():
        found.setdefault(line.partition("(")[0].removeprefix("deprecated "), []).append(line)
    return found


def convention(name: str) -> Convention | None:
    """That of the public function with a dotted name such as ``torch.Tensor.sum``; None where the table does not tell."""
    lines = _table().get(name.removeprefix("torch."))
    return None if lines is None else Convention(name, lines)


class Convention:
    """The signatures of a function. said: what PyTorch's errors call it."""

    def __init__(self, name: str, lines: list[str]) -> None:
        namespace, _, short = name.rpartition(".")
        self.method = namespace == "torch.Tensor"
        self.name = name
        self.said = _NAMESPACES.get(namespace, "") + short
        self.signatures = [Signature(line.partition("(")[2][:-1], line.startswith("deprecated ")) for line in lines]
        self.listed = [s for s in self.signatures if not s.deprecated]
        self._names: frozenset[str] | None = None

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
        if self.name not in _warned:
            _warned.add(self.name)
            warn_user(
                f"This overload of {self.said} is deprecated:\n\t{self.said}{used}\nConsider using one of the following signatures instead:{others}",
                UserWarning,
            )

    def respelt(
        self, implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
        """The call as the implementation understands it, and whether all calls of these types are in order as they are. TypeError where PyTorch
        does not take it."""
        if self.method:
            own, args = _receiver(self.said, args), args[1:]
        else:
            own = ()
        signature, found = self.meant(args, kwargs)
        if signature.deprecated:
            signature = next(s for s in self.listed if found.keys() <= s.by_name.keys())
        elif not kwargs or self._understood(implementation).issuperset(kwargs):
            return (*own, *args), kwargs, not any(_is_value(signature, name, value) for name, value in found.items())
        return *_positionally(signature, found, self._understood(implementation), own), False

    def _understood(self, implementation: Callable[..., Any]) -> frozenset[str]:
        """The names that the implementation knows."""
        if self._names is None:
            schema = getattr(implementation, "schema", None)
            if schema is not None:
                names = {*schema.by_name, "out"} | ({"input"} if "self" in schema.by_name else set())
            else:
                names = set(inspect.signature(implementation, follow_wrapped=False).parameters)
            self._names = frozenset(names)
        return self._names


_warned: set[str] = set()


def _receiver(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if not args:
        raise TypeError(f"unbound method TensorBase.{name}() needs an argument")
    if not isinstance(args[0], Tensor):
        raise TypeError(f"descriptor '{name}' for 'torch._C.TensorBase' objects doesn't apply to a '{type(args[0]).__name__}' object")
    return args[:1]


def _literal(default: str) -> Any:
    """A default as PyTorch writes it: tuples have braces."""
    return ast.literal_eval(default.replace("{", "(").replace("}", ")"))


def _is_value(signature: Signature, name: str, value: Any) -> bool:
    """Whether a tensor stands for a number, which only one without dimensions may."""
    if signature.by_name[name].kind in ("Tensor", "Tensor|Scalar", "Tensor[]", "any"):
        return False
    return isinstance(value, Tensor) or (isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value))


def _positionally(signature: Signature, found: dict[str, Any], names: frozenset[str], own: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments by position as far as positions go, those of other names by keyword."""
    positional = signature.parameters[: signature.most_positional]
    last = max((i for i, p in enumerate(positional) if p.name in found and p.name not in names), default=-1)
    values = list(own)
    for p in positional[: last + 1]:
        values.append(found[p.name] if p.name in found else _literal(p.default or "None"))
    rest = {p.name: found[p.name] for p in signature.parameters[last + 1 :] if p.name in found}
    return tuple(values), rest
