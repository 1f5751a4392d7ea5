"""What is put in the place of functions while a program is recorded, and taken away afterwards."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable
from typing import Any

from torchgrad_jax.fx.node import map_aggregate
from torchgrad_jax.fx.proxy import Proxy

# The globals of modules that have called `wrap`, and in each under this key the names that it was told.
_registered: list[dict[str, Any]] = []
_KEY = "__wrapped_for_fx__"
# Methods of classes that are to be recorded as one call.
_methods: list[tuple[type, str]] = []
_MISSING = object()


class Patcher:
    """A block within which attributes and globals are replaced; at its end they are what they were."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._visited: set[Any] = set()

    def patch(self, frame_dict: dict[str, Any], name: str, new: Any, deduplicate: bool = True) -> None:
        """Replace a global. deduplicate: only the first time."""
        if deduplicate and not self._first((id(frame_dict), name)):
            return
        before = frame_dict.get(name, _MISSING)
        frame_dict[name] = new
        self._undo.append(lambda: frame_dict.pop(name, None) if before is _MISSING else frame_dict.__setitem__(name, before))

    def patch_method(self, cls: Any, name: str, new: Any, deduplicate: bool = True) -> None:
        """Replace an attribute of a class, or of a module. deduplicate: only the first time."""
        if deduplicate and not self._first((cls, name)):
            return
        before = vars(cls).get(name, _MISSING)
        setattr(cls, name, new)
        self._undo.append(lambda: delattr(cls, name) if before is _MISSING else setattr(cls, name, before))

    def visit_once(self, thing: Any) -> bool:
        """Whether it is the first time that this is asked about the object."""
        return self._first(("visited", id(thing)))

    def _first(self, key: Any) -> bool:
        if key in self._visited:
            return False
        self._visited.add(key)
        return True

    def __enter__(self) -> Patcher:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._undo:
            self._undo.pop()()
        self._visited.clear()


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Let calls of a function, by this name in this module, be recorded as one call and not traced through. To be called at the top level of a
    module, with the function or its name, or used as a decorator; gives back what it is given.

    Example::

        torch.fx.wrap("len")

        def first(x):
            return x[: len(x) // 2]

        torch.fx.symbolic_trace(first)
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    here = inspect.currentframe()
    frame = here.f_back if here is not None else None
    if frame is None or frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    names = frame.f_globals.setdefault(_KEY, {})
    if not names and "__name__" in frame.f_globals:  # what a graph was written as is found by its function when it is called
        _registered.append(frame.f_globals)
    names[name] = None
    return fn_or_name


def wrap_method(cls: type, name: str) -> None:
    """Let calls of a method of a class be recorded as one call."""
    _methods.append((cls, name))


def find_proxy(*given: Any) -> Proxy | None:
    """A proxy among the arguments, or within them; None where there is none."""
    found: list[Proxy] = []
    map_aggregate(given, lambda a: found.append(a) if isinstance(a, Proxy) else a)
    return found[0] if found else None


def recorded_function(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, recorded as one call where it is given a proxy."""

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = find_proxy(args, kwargs)
        if proxy is None:
            return original(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", original, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return wrapped


def recorded_method(cls: type, name: str) -> Callable[..., Any]:
    """The method, recorded as one call where it is given a proxy."""
    original = getattr(cls, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = find_proxy(args, kwargs)
        return original(*args, **kwargs) if proxy is None else proxy.tracer.create_proxy("call_method", name, args, kwargs)

    return wrapped


def patch_wrapped_functions(patcher: Patcher) -> None:
    """Put recorded functions in the place of those that `wrap` was told of."""
    for frame_dict in _registered:
        _patch_marked(patcher, frame_dict)
    for cls, name in _methods:
        patcher.patch_method(cls, name, recorded_method(cls, name))


def _patch_marked(patcher: Patcher, frame_dict: dict[str, Any]) -> None:
    for name in frame_dict.get(_KEY, ()):
        original = frame_dict.get(name, getattr(builtins, name, None))
        if original is None:
            raise NameError(f"torch.fx.wrap was told of {name!r}, which the module does not have")
        patcher.patch(frame_dict, name, recorded_function(original))


def autowrap_check(patcher: Patcher, frame_dict: dict[str, Any], function_ids: set[int]) -> None:
    """Put recorded functions in the place of those among these globals that are to be recorded, or that `wrap` was told of there."""
    if not patcher.visit_once(frame_dict):
        return
    _patch_marked(patcher, frame_dict)
    for name, value in list(frame_dict.items()):
        if not name.startswith("_") and callable(value) and id(value) in function_ids:
            patcher.patch(frame_dict, name, recorded_function(value))
