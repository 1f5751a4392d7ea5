"""What a function reaches besides its arguments: closure cells, globals, and what these hold. It tells whether any of it has changed.

What is watched: the cells and globals that its code names, and those of the functions that it reaches so; lists, tuples, dicts and sets in them; the
attributes of objects in them that some of this code names, of modules of `nn` all. Numbers, strings and their like are compared by value, all
else by identity. What an attribute or a key leads to that is made up when the function runs is not watched.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Iterable
from operator import attrgetter, is_
from typing import Any

import numpy as np

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.structures import BY_VALUE

# What belongs to libraries is taken to stay what it is.
_LIBRARIES = frozenset(("torchgrad_jax", "torch", "jax", "jaxlib", "numpy", "builtins", "math", "functools", "itertools", "collections", "typing"))
_OURS = ("torchgrad_jax.nn", "torchgrad_jax.optim", "torchgrad_jax._dynamo.eval_frame")
# So many objects are looked into, at most.
MOST = 4_000
_contents = attrgetter("cell_contents")
_MISSING: Any = object()


# What stands for a number that is read anew at each call.
_ANEW: Any = object()


class Reach:
    """What a function reached when it was traced. `changed` tells what is not as it was.

    The learning rates of optimizers' groups, which are dicts with "params" and "lr", are inputs of the program where the trace has taken them for
    such, and where no code of the user's that was reached asks for an "lr". What they are then makes no difference.
    """

    __slots__ = ("cells", "named", "containers", "labels", "_found", "_kept", "_rates", "_constant")

    def __init__(self, function: Any, objects: Iterable[Any]) -> None:
        walk = _Walk(function, objects)
        self.cells = list(walk.cells.values())
        self.named = [(names, tuple(keys)) for names, keys in walk.named.values() if keys]
        self.containers = [c for c in walk.containers.values() if type(c) is not tuple]
        self.labels = walk.labels
        asked = any(_mentions(f.__code__, "lr") for f in walk.functions)
        groups = [c for c in self.containers if isinstance(c, dict) and "params" in c and type(c.get("lr")) is float]
        self._rates: dict[int, tuple[dict[str, Any], float]] = {} if asked else {id(c): (c, c["lr"]) for c in groups}
        self._constant = list(self._rates.values())
        self._found = self._now()
        self._kept = walk.functions

    def renewed(self, groups: Iterable[dict[str, Any]]) -> None:
        """The learning rates of these groups are inputs of the program."""
        anew = set(map(id, groups))
        self._constant = [pair for number, pair in self._rates.items() if number not in anew]

    def _now(self) -> list[Any]:
        found = list(map(_contents, self.cells))
        for names, keys in self.named:
            found += map(names.get, keys)
        for container in self.containers:
            found += container
            if id(container) in self._rates:
                found += [_ANEW if key == "lr" and type(value) is float else value for key, value in container.items()]
            elif isinstance(container, dict):
                found += container.values()
        return found

    def holds(self) -> bool:
        """Whether all is as it was."""
        try:
            now = self._now()
        except ValueError:  # a cell was emptied
            return False
        if self._constant and not all([_alike(group.get("lr"), rate) for group, rate in self._constant]):
            return False
        was = self._found
        if len(now) != len(was):
            return False
        if all(map(is_, now, was)):
            return True
        if all(map(_alike, now, was)):
            self._found = now
            return True
        return False

    def changed(self) -> str:
        """What is not as it was, in words."""
        names = [self.labels.get(id(c), "a closure cell") for c in self.cells]
        for owner, keys in self.named:
            names += [f"{self.labels.get(id(owner), '')}{key}" for key in keys]
        try:
            now = self._now()
        except ValueError:
            return "a closure cell was emptied"
        for name, a, b in zip(names, self._found, now, strict=False):
            if not _alike(a, b):
                return f"{name} was {_shown(a)} and is {_shown(b)}"
        return "a list or dict that it reaches has changed"


def _mentions(code: types.CodeType, constant: str) -> bool:
    return any(c == constant or (isinstance(c, types.CodeType) and _mentions(c, constant)) for c in code.co_consts)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, (*BY_VALUE, float)) else f"another {type(value).__name__}"


def _alike(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is float:
        return a.hex() == b.hex()
    if type(a) is types.MethodType:
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    return isinstance(a, BY_VALUE) and bool(a == b)


class _Walk:
    """Goes through all that a function reaches."""

    def __init__(self, function: Any, objects: Iterable[Any]) -> None:
        self.cells: dict[int, Any] = {}
        self.named: dict[int, tuple[dict[str, Any], dict[str, None]]] = {}
        self.containers: dict[int, Any] = {}
        self.functions: dict[Any, None] = {}
        self.instances: dict[int, Any] = {}
        self.labels: dict[int, str] = {}
        self.names: dict[str, None] = {}
        self.queue: list[Any] = [function, *objects]
        self.seen: dict[int, Any] = {}
        known = (-1, -1)
        while known != (len(self.names), len(self.seen)):
            while self.queue and len(self.seen) < MOST:
                self._visit(self.queue.pop())
            self.queue.clear()
            known = len(self.names), len(self.seen)
            for instance in list(self.instances.values()):
                self._attributes(instance)

    def _visit(self, o: Any) -> None:
        if isinstance(o, (Tensor, np.ndarray, *BY_VALUE, float)) or id(o) in self.seen:
            return
        self.seen[id(o)] = o
        if isinstance(o, types.FunctionType):
            self._function(o)
        elif isinstance(o, types.MethodType):
            self.queue += (o.__func__, o.__self__)
        elif isinstance(o, functools.partial):
            self.queue += (o.func, o.args, o.keywords)
        elif isinstance(o, weakref.ref):
            self.queue.append(o())
        elif isinstance(o, (list, tuple, set, frozenset, dict)):
            self.containers[id(o)] = o
            self.queue += o.values() if isinstance(o, dict) else o
        elif isinstance(o, (types.ModuleType, type)):
            if _root(o.__name__ if isinstance(o, types.ModuleType) else o.__module__) not in _LIBRARIES:
                self.instances[id(o)] = o
                self._attributes(o)
        elif hasattr(o, "__wrapped__"):
            self.queue.append(o.__wrapped__)
        elif hasattr(o, "__dict__") and (_root(type(o).__module__) not in _LIBRARIES or type(o).__module__.startswith(_OURS)):
            self.instances[id(o)] = o
            self._attributes(o)
            for name in ("forward", "__call__"):
                self._method(type(o), name)

    def _function(self, f: types.FunctionType) -> None:
        if _root(f.__module__ or "") in _LIBRARIES and getattr(f, "__wrapped__", None) is None:
            return
        self.functions[f] = None
        wrapped = getattr(f, "__wrapped__", None)
        if wrapped is not None:
            self.queue.append(wrapped)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            try:
                self.queue.append(cell.cell_contents)
            except ValueError:
                continue
            self.cells[id(cell)] = cell
            self.labels[id(cell)] = name
        self.queue += (f.__defaults__ or (), f.__kwdefaults__ or {})
        self._code(f.__code__, f.__globals__)

    def _code(self, code: types.CodeType, globals_: dict[str, Any]) -> None:
        for name in code.co_names:
            self.names[name] = None
            if name in globals_:
                self._name(globals_, name)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant, globals_)

    def _name(self, names: dict[str, Any], name: str) -> None:
        self.named.setdefault(id(names), (names, {}))[1][name] = None
        self.queue.append(names[name])

    def _attributes(self, o: Any) -> None:
        names = o.__dict__
        if isinstance(names, types.MappingProxyType):  # of a class
            for name in [n for n in self.names if n in names]:
                if isinstance(names[name], types.FunctionType):
                    self.queue.append(names[name])
                else:
                    self.named.setdefault(id(o), (names, {}))[1][name] = None  # type: ignore[arg-type] - it is read as a dict is
                    self.queue.append(names[name])
            return
        every = type(o).__module__.startswith(_OURS)
        for name in names if every else [n for n in self.names if n in names]:
            self._name(names, name)
        if not isinstance(o, types.ModuleType):
            self.labels.setdefault(id(names), f"{type(o).__name__}.")
            for table in ("_parameters", "_buffers", "_modules"):
                if table in names:
                    self._name(names, table)
            for name in [] if every else list(self.names):
                self._method(type(o), name)

    def _method(self, kind: type, name: str) -> None:
        found: Any = getattr(kind, name, None)
        if isinstance(found, types.FunctionType):
            self.queue.append(found)
        elif isinstance(found, property) and found.fget is not None:
            self.queue.append(found.fget)


def _root(name: str) -> str:
    return name.partition(".")[0]
