"""What a function reaches besides its arguments: closure cells, globals, and what these hold. It tells whether any of it has changed.

What is watched: the cells and globals that its code names, and those of the functions that it reaches so; lists, tuples, dicts and sets in them; the
attributes of objects in them that some of this code names, of modules of `nn` all; the same of their classes, and of modules and classes of this
package, for others may be put in their place; hooks, attributes, shape and dtype of tensors; and what `asking` tells. Numbers, strings and their like
are compared by value, all else by identity.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter, is_
from typing import Any

from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.lifting.asking import MOST_BYTES, asks_for_all, content_of, is_consumed, is_setting, state_of, strings_asked
from torchgrad_jax.lifting.replaced import state
from torchgrad_jax.lifting.structures import BY_VALUE, told_by
from torchgrad_jax.runtime.recording.interrupts import from_outside

# What belongs to libraries is taken to stay what it is.
_LIBRARIES = frozenset(("torchgrad_jax", "torch", "jax", "jaxlib", "numpy", "builtins", "math", "functools", "itertools", "collections", "typing"))
# Of these all attributes are watched.
_OURS = ("torchgrad_jax.nn", "torchgrad_jax.optim", "torchgrad_jax._dynamo.eval_frame", "collections")
# So many objects are looked into, at most.
MOST = 4_000
_contents, _attributes_of, _requires_grad, _kind = attrgetter("cell_contents"), attrgetter("__dict__"), attrgetter("_rg"), attrgetter("_aval")
# What a function is beside its cells: a notebook that loads a module anew puts others in their place.
_OF_FUNCTIONS = tuple(map(attrgetter, ("__code__", "__defaults__", "__kwdefaults__")))
# Lists and dicts that every function reaches.
everywhere: list[Any] = []
# By these an object, or a Function, is called, whatever code names.
_CALLED = ("forward", "__call__", "backward", "setup_context", "jvp", "vmap")
# Methods of Python's that no operation on an object calls; operators, indexing and the like call the others.
_UNCALLED = frozenset((
    "__init__", "__new__", "__post_init__", "__init_subclass__", "__del__", "__repr__", "__str__", "__reduce__", "__reduce_ex__", "__getstate__",
    "__setstate__", "__copy__", "__deepcopy__", "__dir__", "__sizeof__", "__class_getitem__",
))  # fmt: skip
# What is called where such an attribute of a class is read.
_GETTERS = {property: "fget", functools.cached_property: "func"}
_WALKED = (types.FunctionType, types.MethodType, types.ModuleType, type, functools.partial)
_DICTS = (dict, types.MappingProxyType)
_CONTAINERS = (list, tuple, set, frozenset, deque, *_DICTS)
_PACKAGE = __name__.partition(".")[0]

# What stands for a number that is read anew at each call.
_ANEW: Any = object()


class Reach:
    """What a function reached when it was traced. `changed` tells what is not as it was.

    The learning rates of optimizers' groups, which are dicts with "params" and "lr", are inputs of the program where the trace has taken them for
    such, and where no code of the user's that was reached asks for an "lr". What they are then makes no difference.
    """

    __slots__ = (
        "cells", "named", "containers", "labels", "objects", "tensors", "hooked", "_found", "_kept", "_rates", "_constant", "spent",
        "asked", "_drawing", "_drawn", "iterates",
    )  # fmt: skip

    def __init__(self, function: Any, objects: Iterable[Any]) -> None:
        walk = _Walk(function, objects)
        self.asked, self._drawing, self.iterates = [state, *walk.asked.values()], list(walk.drawing.values()), walk.iterates
        self._drawn = [state() for state in self._drawing]
        self.cells = list(walk.cells.values())
        self.named = [(names, tuple(keys)) for names, keys in walk.named.values() if keys]
        self.containers = [c for c in walk.containers.values() if type(c) is not tuple]
        self.labels = walk.labels
        self.objects, self.tensors = [o for o in walk.instances.values() if not isinstance(o, types.ModuleType)], list(walk.tensors.values())
        self.hooked = [t for t in self.tensors if t._rg or isinstance(t, Parameter)]  # others have none, and get none while they require none
        asked = any(_mentions(f.__code__, "lr") for f in walk.functions)
        groups = [c for c in self.containers if isinstance(c, dict) and "params" in c and type(c.get("lr")) is float]
        self._rates: dict[int, tuple[dict[str, Any], float]] = {} if asked else {id(c): (c, c["lr"]) for c in groups}
        self._constant = list(self._rates.values())
        self._kept = walk.functions
        self.spent = False
        self._found = self._now()

    def renewed(self, groups: Iterable[dict[str, Any]]) -> None:
        """The learning rates of these groups are inputs of the program."""
        anew = set(map(id, groups))
        self._constant = [pair for number, pair in self._rates.items() if number not in anew]

    def _now(self) -> list[Any]:
        found = list(map(_contents, self.cells))
        for names, keys in self.named:
            found += map(names.get, keys)
        found += map(len, self.containers)
        for container in filter(None, self.containers):  # most are tables of hooks, with nothing in them
            found += container
            if id(container) in self._rates:
                found += [_ANEW if key == "lr" and type(value) is float else value for key, value in container.items()]
            elif isinstance(container, _DICTS):
                found += container.values()
        found += map(type, self.objects)
        found += map(len, map(_attributes_of, self.objects))  # what is added to an object may be read in place of what its class has
        for part in _OF_FUNCTIONS:
            found += map(part, self._kept)
        found += map(_hooks_of, self.hooked)
        found += map(_requires_grad, self.tensors)
        found += map(_kind, self.tensors)
        found += map(len, map(_attributes_of, self.tensors))
        found += [ask() for ask in self.asked]
        return found

    def refused(self) -> str:
        """Why what it reaches makes a call no program, now that it was called: it draws by a generator, or has an iterator. "" where it does not."""
        if self.iterates:
            return f"it reaches an iterator ({self.iterates}), which would give the same at each call: take its items outside"
        if [state() for state in self._drawing] != self._drawn:
            return "it draws random numbers by a generator of Python's or NumPy's, which would be the same at each call: draw them by torch"
        return ""

    def holds(self) -> bool:
        """Whether all is as it was, and the function has left it so: what it changes of it, it would not change again when its program runs."""
        if self.spent:
            return False
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
        if self.spent and len(now) == len(self._found) and all(map(_alike, now, self._found)):
            return "it changes what it reaches"
        return "a list, a dict, an object, a class, a setting or a tensor that it reaches has changed"


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
    if type(a) is tuple:  # what is in it is watched
        return len(a) == len(b) and all(map(_alike, a, b))
    return isinstance(a, BY_VALUE) and bool(told_by(a) == told_by(b))


def _hooks_of(t: Tensor) -> Any:
    extra = t._extra
    return None if extra is None or (extra.hooks is None and extra.post_hooks is None) else (extra.hooks, extra.post_hooks)


def _dict_of(o: Any) -> Any:
    """The attributes of an object, None where it has no dict of them."""
    try:
        return o.__dict__
    except Exception as error:  # code of the object's own may be asked, and what that raises is nobody's
        if from_outside(error):
            raise
        return None


class _Slotted:
    """The attributes of an object that has no dict of them, read as from one."""

    __slots__ = ("_object",)

    def __init__(self, o: Any) -> None:
        self._object = o

    def get(self, name: str) -> Any:
        """An attribute, None where there is none, or none that is a slot."""
        slot = getattr(type(self._object), name, None)
        return getattr(self._object, name, None) if isinstance(slot, types.MemberDescriptorType) else None


class _Walk:
    """Goes through all that a function reaches."""

    def __init__(self, function: Any, objects: Iterable[Any]) -> None:
        self.cells: dict[int, Any] = {}
        self.named: dict[int, tuple[Any, dict[str, None]]] = {}  # what is read as a dict is
        self.containers: dict[int, Any] = {}
        self.functions: dict[Any, None] = {}
        self.instances: dict[int, Any] = {}
        self.tensors: dict[int, Tensor] = {}
        self.slotted: dict[int, _Slotted] = {}
        self.labels: dict[int, str] = {}
        self.names: dict[str, None] = {}
        self.asked: dict[int, Callable[[], Any]] = {}
        self.drawing: dict[int, Callable[[], Any]] = {}
        self.iterates, self.room, self.every = "", MOST_BYTES, False
        self.queue: list[Any] = [function, *objects, *everywhere, Tensor]
        self.seen: dict[int, Any] = {}
        known: Any = None
        while True:
            while self.queue and len(self.seen) < MOST:
                self._visit(self.queue.pop())
            self.queue.clear()
            if known == (len(self.names), len(self.seen), self.every):
                break
            known = len(self.names), len(self.seen), self.every
            for instance in list(self.instances.values()):  # code that was met since may name more of it
                self._attributes(instance)
            for number, slots in self.slotted.items():
                for name in [n for n in self.names if slots.get(n) is not None]:
                    self.named.setdefault(number, (slots, {}))[1][name] = None
                    self.queue.append(slots.get(name))

    def _visit(self, o: Any) -> None:
        if isinstance(o, Tensor):
            self._tensor(o)
            return
        if isinstance(o, (*BY_VALUE, float)) or id(o) in self.seen:
            return
        self.seen[id(o)] = o
        if isinstance(o, types.FunctionType):
            self._function(o)
        elif (state := state_of(o)) is not None:
            self.drawing[id(o)] = state
        elif (content := content_of(o, self.room)) is not None:
            self._content(o, content)
        elif is_consumed(o):
            self.iterates = self.iterates or type(o).__name__
        elif isinstance(o, (types.BuiltinMethodType, types.MethodWrapperType)):
            if not isinstance(o.__self__, types.ModuleType):
                self.queue.append(o.__self__)
        elif isinstance(o, types.MethodType):
            self.queue += (o.__func__, o.__self__)
        elif isinstance(o, functools.partial):
            self.queue += (o.func, o.args, o.keywords)
        elif isinstance(o, weakref.ref):
            self.queue.append(o())
        elif isinstance(o, _CONTAINERS):
            self.containers[id(o)] = o
            self.queue += o.values() if isinstance(o, _DICTS) else o
            if _root(type(o).__module__) not in _LIBRARIES:
                self._object(o)
        elif isinstance(o, (types.ModuleType, type)):
            if _root(o.__name__ if isinstance(o, types.ModuleType) else o.__module__) not in _LIBRARIES:
                self.instances[id(o)] = o
                self._attributes(o)
                if isinstance(o, type):
                    self.queue += (type(o), *o.__mro__[1:])
            elif _is_ours(o):
                self._replaceable(o)
        elif isinstance(o, (staticmethod, classmethod)):
            self.queue.append(o.__func__)
        elif (wrapped := (_dict_of(o) or {}).get("__wrapped__")) is not None:
            self.queue.append(wrapped)
        else:
            self._object(o)

    def _object(self, o: Any) -> None:
        kind = type(o)
        library = _root(kind.__module__) in _LIBRARIES
        if _dict_of(o) is not None and (not library or kind.__module__.startswith(_OURS)):
            self.instances[id(o)] = o
            self._attributes(o)
            self.queue.append(kind)
            for name in _CALLED:
                self._method(kind, name)
        elif hasattr(kind, "__slots__") and not library:
            self.slotted[id(o)] = _Slotted(o)
            self.queue.append(kind)

    def _content(self, o: Any, content: Callable[[], Any]) -> None:
        found = content()
        self.asked[id(o)] = content
        if type(found) is bytes:
            self.room -= len(found)
        else:
            self.queue.append(found)

    def _replaceable(self, o: Any) -> None:
        """Of a module or class of this package what code names, or what is called: the user may put something else in its place."""
        names = o.__dict__
        self.instances[id(o)] = o
        for name in [n for n in (*_CALLED, *self.names) if n in names]:
            found = names[name]
            self.named.setdefault(id(o), (names, {}))[1][name] = None
            if isinstance(found, _WALKED) or _root(type(found).__module__) not in _LIBRARIES:  # what else the library holds is its own
                self.queue.append(found)
        if isinstance(o, type):
            self.queue += o.__mro__[1:]

    def _tensor(self, t: Tensor) -> None:
        if id(t) not in self.tensors:
            self.tensors[id(t)] = t
            self.queue += [hooks for hooks in _hooks_of(t) or () if hooks is not None]
            attributes = t.__dict__
            for name in attributes:
                self._name(attributes, name)

    def _function(self, f: types.FunctionType) -> None:
        if _root(f.__module__ or "") in _LIBRARIES and getattr(f, "__wrapped__", None) is None:
            if _root(f.__module__) == _PACKAGE and is_setting(f):
                self.asked[id(f)] = f
            return
        self.functions[f] = None
        self.instances[id(f)] = f
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
        if _root(f.__module__ or "") != _PACKAGE:
            self._code(f.__code__, f.__globals__)

    def _code(self, code: types.CodeType, globals_: dict[str, Any]) -> None:
        for name in code.co_names:
            self.names[name] = None
            if name in globals_:
                self._name(globals_, name)
        self.names.update(dict.fromkeys(strings_asked(code)))
        self.every = self.every or asks_for_all(code)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant, globals_)

    def _name(self, names: Any, name: str) -> None:
        self.named.setdefault(id(names), (names, {}))[1][name] = None
        self.queue.append(names[name])

    def _attributes(self, o: Any) -> None:
        if _is_ours(o):
            self._replaceable(o)
            return
        names = o.__dict__
        if isinstance(names, types.MappingProxyType):  # of a class
            called = [n for n in names if n[:2] == "__" and n not in _UNCALLED and isinstance(names[n], types.FunctionType)]
            for name in [*called, *[n for n in (*_CALLED, *self.names) if n in names]]:
                self.named.setdefault(id(o), (names, {}))[1][name] = None
                found = names[name]
                self.queue.append(getattr(found, _GETTERS.get(type(found), ""), found))
            return
        every = (self.every and not isinstance(o, types.ModuleType)) or _is_read_by_ours(type(o))
        for name in names if every else [n for n in self.names if n in names]:
            self._name(names, name)
        if not isinstance(o, types.ModuleType):
            self.labels.setdefault(id(names), f"{type(o).__name__}.")
            for table in ("_parameters", "_buffers", "_modules"):
                if table in names:
                    self._name(names, table)
            for name in list(self.names):
                self._method(type(o), name)

    def _method(self, kind: type, name: str) -> None:
        found: Any = getattr(kind, name, None)
        if isinstance(found, types.FunctionType):
            self.queue.append(found)
        elif isinstance(found, property) and found.fget is not None:
            self.queue.append(found.fget)


def _is_ours(o: Any) -> bool:
    """Whether this is a module or a class of this package."""
    return isinstance(o, (types.ModuleType, type)) and _root(o.__name__ if isinstance(o, types.ModuleType) else o.__module__) == _PACKAGE


@functools.cache
def _is_read_by_ours(kind: type) -> bool:
    """Whether objects of this class have attributes that code of this package reads: it is a class of its, or made of one that is no mere base."""
    return any([c.__module__.startswith(_OURS) and c.__name__ != "Module" for c in kind.__mro__])


def _root(name: Any) -> str:
    return name.partition(".")[0] if isinstance(name, str) else ""  # a metaclass may have something else for it
