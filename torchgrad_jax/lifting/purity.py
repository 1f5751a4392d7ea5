"""Which functions do the same whenever they are called with the same: what they do is known from their first call, and need not be done again.

Python says of no function that it is pure, so this is decided by what its code can reach, and in doubt against it. Pure is a function of the
user's that names nothing but tensors, numbers, this package, NumPy, a few of Python's own functions, lists, dicts and modules of `nn` of such, and
functions and methods that are pure themselves; that assigns to nothing but its own variables and to elements; and that names no attribute by which
something else would change. What it captures is found at each call anew: `Reached` has the tensors among it, and what stands for all the rest.
Whether a list or a dict was written to shows in that after the call.
"""

from __future__ import annotations

import builtins
import dis
import math
import types
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from torchgrad_jax.core.fields import needs_grad, read
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.lifting.trees import BUILTIN_TYPES, TreeSpec, tree_flatten
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.recorder import FUNCTIONS
from torchgrad_jax.runtime.value import Value, is_tracer

_BUILTINS = frozenset(
    map(
        id,
        (abs, all, any, bool, callable, complex, dict, divmod, enumerate, filter, float, frozenset, hasattr, int, isinstance, issubclass, iter, len,
         list, map, max, min, next, object, pow, range, repr, reversed, round, set, slice, sorted, str, sum, super, tuple, type, zip),
    )
)  # fmt: skip
_CONSTANTS = frozenset((int, float, complex, bool, str, bytes, type(None), type(Ellipsis), dtypes.dtype, device, slice, range))
_WRITTEN_ANEW = frozenset((float, complex, slice))  # 0.0 and -0.0 are equal; slices cannot be hashed
_EXCEPTIONS = frozenset([e for e in vars(builtins).values() if isinstance(e, type) and issubclass(e, Exception)])
# By these something changes that is no variable of the function's, or something is read that it was not given.
_IMPURE_NAMES = frozenset((
    "grad", "_grad", "grad_fn", "data", "_base", "backward", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "requires_grad_",
    "manual_seed", "seed", "initial_seed", "get_rng_state", "default_generator", "fork_rng", "save", "load", "synchronize", "data_ptr",
    "untyped_storage", "storage", "autograd", "overrides", "utils", "runtime", "compile", "jit", "random", "cuda", "is_grad_enabled", "enable_grad",
    "no_grad", "inference_mode", "share_memory_", "resize_", "__dict__", "__class__", "_version", "globals", "locals", "backends", "cudnn", "mkldnn",
    "_is_view", "storage_offset", "as_strided", "__future__", "get_default_device", "get_autocast_dtype", "get_deterministic_debug_mode",
    "is_leaf", "retains_grad", "output_nr", "_backward_hooks", "_post_accumulate_grad_hooks",
))  # fmt: skip
_IMPURE_OPCODES = frozenset((
    "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "IMPORT_FROM", "LOAD_BUILD_CLASS",
    "YIELD_VALUE", "SETUP_WITH", "BEFORE_WITH", "LOAD_CLASSDEREF", "LOAD_NAME",
))  # fmt: skip
_MOST_FUNCTIONS = 64
# What is in them is noted at each call. A function that writes to them has changed what it reaches, which its first call shows.
_SEQUENCES, _DICTS = frozenset((tuple, list)), frozenset((dict, OrderedDict))
_METHODS = (staticmethod, classmethod)
_Function, _Method, _Module = types.FunctionType, types.MethodType, types.ModuleType
_OF_LIBRARY = frozenset((*FUNCTIONS, types.BuiltinFunctionType))
# Classes of further objects, and what notes what one of them reaches. What sets such objects apart is their class and that alone.
objects: list[tuple[type, Callable[[Any, Any], None]]] = []


class Impure(Exception):
    """A function may do something else the next time, or something besides."""


class Reached:
    """What a function reaches. key: all of it but tensors' contents. tensors: those, in the order in which they are met. containers: the lists and
    dicts."""

    __slots__ = ("key", "tensors", "containers", "_functions", "_objects", "_classes", "_names", "_looked_up")

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.tensors: list[Tensor] = []
        self.containers: list[Any] = []
        self._functions: dict[int, int] = {}
        self._objects: dict[int, int] = {}
        self._classes: dict[type, None] = {}
        self._names: dict[str, None] = {}
        self._looked_up: set[tuple[type, str]] = set()

    def add(self, value: Any) -> None:
        """Note a value that the function reaches. Impure if that may change, or change something."""
        kind = type(value)
        if kind in _CONSTANTS:
            self.key += (kind, repr(value) if kind in _WRITTEN_ANEW else value)
        elif kind is Tensor or isinstance(value, Tensor):
            self.key += (kind, len(self.tensors))
            self.tensors.append(value)
            for name, attribute in value.__dict__.items():
                self.key.append(name)
                self.add(attribute)
        elif kind in _SEQUENCES:
            self.key += (kind, len(value))
            if kind is list:
                self.containers.append(value)
            for v in value:
                self.add(v)
        elif kind in _DICTS:
            self.key += (kind, len(value))
            self.containers.append(value)
            for k, v in value.items():
                self.add(k)
                self.add(v)
        else:
            for base, look_into in objects:
                if isinstance(value, base):
                    self._add_object(value, kind, look_into)
                    return
            self._add_callable(value, kind)

    def _add_object(self, value: Any, kind: type, look_into: Callable[[Reached, Any], None]) -> None:
        known = self._objects.get(id(value))
        self.key += (kind, len(self._objects) if known is None else known)
        if known is None:
            self._objects[id(value)] = len(self._objects)
            look_into(self, value)

    def add_class(self, kind: type, name: str) -> None:
        """Note a class of the user's whose method of this name is called. What else of it is read is told by names in the code that is reached."""
        self._classes[kind] = None
        self._names[name] = None

    def complete(self) -> None:
        """Note what the code that was reached names of the classes that were. Impure if that may change, or change something."""
        known = (-1, -1)
        while known != (len(self._classes), len(self._names)):
            known = len(self._classes), len(self._names)
            for kind in list(self._classes):
                for name in [n for n in self._names if n in vars(kind) and (kind, n) not in self._looked_up]:
                    self._looked_up.add((kind, name))
                    found = vars(kind)[name]
                    self.key.append(name)
                    self.add(found.fget if isinstance(found, property) else found.__func__ if isinstance(found, _METHODS) else found)

    def contents(self, args: tuple[Any, ...], kwargs: dict[str, Any], grad_enabled: bool) -> list[Value] | None:
        """The Values of all tensors, with those that the function is given, which are noted as what it reaches; None where there is one that it
        cannot be done again with."""
        captured = len(self.tensors)
        try:
            if _is_made_of_plain(args) and _is_made_of_plain(kwargs):
                self.add(args)
                self.add(kwargs)
            else:
                leaves, spec = tree_flatten((args, kwargs))
                if not is_plain(spec):
                    return None
                self.key.append(spec)
                for leaf in leaves:
                    self.add(leaf)
            self.complete()
        except (Impure, RecursionError):
            return None
        values = []
        for i, t in enumerate(self.tensors):
            if (type(t) is not Tensor and type(t) is not Parameter) or (t._storage is not None and t._storage.inference):
                return None
            if t._view is not None and (i < captured or not t.is_contiguous() or (grad_enabled and needs_grad(t))):
                return None
            value = read(t)
            if value.array is not None and is_tracer(value.array):
                return None
            values.append(value)
        return values

    def as_key(self, values: list[Value], settings: tuple[Any, ...]) -> tuple[Any, ...]:
        """What tells calls from one another: all that is reached, for tensors of these contents what they are and which are the same."""
        places: dict[int, int] = {}
        parts = [settings, len(values)]
        for i, value in enumerate(values):
            parts.append(value.aval)
            parts.append(places.setdefault(id(value), i))
            parts.append(self.tensors[i]._rg)
        return tuple(self.key + parts)

    def _add_callable(self, value: Any, kind: type) -> None:
        transform = getattr(value, "transform_of", None) if kind is _Function else None
        if transform is not None:
            self.add_transform(transform)
        elif kind is _Module:
            if value is not math and value is not np and (not _is_ours(value.__name__) or _is_impure_name(value.__name__.rpartition(".")[2])):
                raise Impure
            self.key.append(value.__name__)
        elif id(value) in _BUILTINS or (kind is type and value in _EXCEPTIONS):
            self.key.append(value)
        elif kind is _Method:
            self.key.append("method")
            self.add(value.__self__)
            self.add(value.__func__)
        elif kind is partial:
            self.key.append(kind)
            for part in (value.func, value.args, tuple(value.keywords.items())):
                self.add(part)
        elif kind in _OF_LIBRARY and _is_ours(getattr(value, "__module__", "") or ""):
            if "<locals>" in getattr(value, "__qualname__", "<locals>") or (_is_impure_name(value.__name__) and not _is_transform(value)):
                raise Impure  # what one call has made is another one at the next
            self.key.append(value)
        elif kind is _Function:
            self._add_function(value)
        else:
            raise Impure

    def add_transform(self, parts: tuple[Any, ...]) -> None:
        """Note a transform of a function: its name, what else there is of it, and the function."""
        self.key.append("transform")
        for part in parts:
            self.add(part)

    def _add_function(self, function: types.FunctionType) -> None:
        known = self._functions.get(id(function))
        if known is not None:
            self.key += ("function", known)
            return
        if len(self._functions) >= _MOST_FUNCTIONS:
            raise Impure
        self._functions[id(function)] = len(self._functions)
        code = function.__code__
        self._names.update(dict.fromkeys(_attributes_of(code)))
        names = _globals_of(code)
        if names is None:
            raise Impure
        self.key.append(code)
        self.add(function.__defaults__)
        self.add(tuple((function.__kwdefaults__ or {}).items()))
        for name, attribute in function.__dict__.items():
            self.key.append(name)
            self.add(attribute)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:
                raise Impure from None
            if name == "__class__":  # which `super` asks for: those around it are reached by the object
                self.key.append(content)
                self._classes[content] = None
            else:
                self.add(content)
        scope = function.__globals__
        for name in names:
            if name in scope:
                self.add(scope[name])
            else:
                self.add(getattr(builtins, name, _MISSING))


_MISSING = object()


def _is_made_of_plain(given: Any) -> bool:
    """Whether it is a tensor, a number or the like, or a tuple, list or dict of nothing else."""
    kind = type(given)
    if kind is Tensor or kind is Parameter or kind in _CONSTANTS:
        return True
    if kind is tuple or kind is list:
        return all([_is_made_of_plain(v) for v in given])
    return kind is dict and all([type(k) is str for k in given]) and all([_is_made_of_plain(v) for v in given.values()])


def is_plain(spec: TreeSpec) -> bool:
    """Whether a tree is made of Python's containers alone: what tells those of the user's from others may change."""
    if spec.type is None:
        return True
    return spec.type in BUILTIN_TYPES and all([child.type is None or is_plain(child) for child in spec.children_specs])


def _is_transform(function: Any) -> bool:
    """Whether it is `torch.func.grad`, which changes no `.grad`."""
    return function.__name__ == "grad" and function.__module__.startswith(f"{_PACKAGE}.func.")


def _is_ours(name: str) -> bool:
    return name == _PACKAGE or name.startswith(_PACKAGE + ".")


_PACKAGE = __name__.partition(".")[0]


@cache
def _globals_of(code: types.CodeType) -> tuple[str, ...] | None:
    """The names of the globals that code reads; None if it may be impure."""
    if code.co_flags & 0x2A0:  # generators and coroutines
        return None
    found: dict[str, None] = {}
    before = None
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name in ("LOAD_ATTR", "LOAD_METHOD") and instruction.argval == "grad" and before == "func":  # the transform
            instruction = instruction._replace(argval=before)
        before = instruction.argval if name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL") else None
        if name in _IMPURE_OPCODES:
            return None
        if name in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in code.co_freevars:
            return None
        if name == "LOAD_GLOBAL":
            found[instruction.argval] = None
        elif name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR") and _is_impure_name(instruction.argval):
            return None
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names = _globals_of(inner)
            if names is None:
                return None
            found.update(dict.fromkeys(names))
    return tuple(found)


@cache
def _attributes_of(code: types.CodeType) -> tuple[str, ...]:
    """The names of attributes that code reads."""
    found = [i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")]
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found += _attributes_of(inner)
    return tuple(dict.fromkeys(found))


def _is_impure_name(name: Any) -> bool:
    return name in _IMPURE_NAMES or str(name).startswith(("set_", "_set", "__set", "use_")) or str(name).endswith("_enabled")


def reached(transform: tuple[Any, ...]) -> Reached | None:
    """What a transform of a function reaches if that is pure; None if it may not be. It is given as its parts: see `Reached.add_transform`."""
    found = Reached()
    try:
        found.add_transform(transform)
        found.complete()
    except (Impure, RecursionError):
        return None
    return found
