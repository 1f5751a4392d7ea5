"""`inspect.signature` of public functions: PyTorch's parameters, looked up when somebody asks."""

from __future__ import annotations

import inspect
import types
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torchgrad_jax.calling.convention import PythonConvention, convention
from torchgrad_jax.calling.converting import default_of
from torchgrad_jax.calling.signature import Signature


class Shown(inspect.Signature):
    """The signature of a public function, as `__signature__` must be: made when its parameters are first read."""

    __slots__ = ("_function", "_name", "_known")

    def __init__(self, function: Any, name: str) -> None:
        self._function, self._name = function, name
        self._known: inspect.Signature | None = None

    def _made(self) -> inspect.Signature:
        if self._known is None:
            self._known = _described(self._name) or _written(self._function)
        return self._known

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """See inspect.Signature."""
        return self._made().parameters

    @property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return OrderedDict(self._made().parameters)

    @property
    def return_annotation(self) -> Any:
        """See inspect.Signature."""
        return self._made().return_annotation

    _return_annotation = return_annotation

    def replace(self, **changes: Any) -> inspect.Signature:
        """See inspect.Signature."""
        return self._made().replace(**changes)


def _described(name: str) -> inspect.Signature | None:
    """Of several ways to call a function the one with most parameters, in which what another way lacks is optional; of these the one that takes
    sizes one by one, as they are mostly given."""
    known = convention(name)
    if isinstance(known, PythonConvention):
        return inspect.signature(known.binds)
    if known is None:
        return None
    fullest = max(known.listed, key=lambda s: (len(s.parameters), s.gathers))
    own = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)] if known.method else []
    return inspect.Signature([*own, *_parameters(fullest, known.listed)])


def _parameters(fullest: Signature, others: list[Signature]) -> list[inspect.Parameter]:
    found, optional = [], False
    for p in fullest.parameters:
        given: Any = inspect.Parameter.empty
        if p.default is not None:
            given = default_of(p)
        elif optional or any(p.name not in s.by_name for s in others):
            given = None
        optional = (optional or given is not inspect.Parameter.empty) and not p.keyword_only
        kind = inspect.Parameter.KEYWORD_ONLY if p.keyword_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        if fullest.gathers and not found:
            kind, given = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.empty
        name = p.name if p.name != "from" else "from_"
        found.append(inspect.Parameter(name, kind, default=given))
    return found


def _written(function: Any) -> inspect.Signature:
    """The signature that the function has by its code."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    plain = types.FunctionType(function.__code__, {}, function.__name__, function.__defaults__, function.__closure__)
    plain.__kwdefaults__ = function.__kwdefaults__
    made = inspect.signature(plain)
    # A mark that an argument is missing says nothing to a reader.
    return made.replace(parameters=[p.replace(default=None) if type(p.default) is object else p for p in made.parameters.values()])
