"""`torch.jit` without TorchScript: its decorators give back what they are given, and what they decorate runs as Python.

What needs TorchScript itself, programs in files and graphs of source code, raises NotImplementedError with what to do instead.
"""

from __future__ import annotations

import os
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, TypeVar

from torchgrad_jax import nn
from torchgrad_jax.futures import Future, PlainFuture
from torchgrad_jax.lifting.jitting import jit
from torchgrad_jax.runtime import passing_through
from torchgrad_jax.runtime.user_code import warn_user

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "ScriptFunction", "annotate", "enable_onednn_fusion", "export", "export_opnames",
    "fork", "freeze", "fuser", "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load", "onednn_fusion_enabled",
    "optimize_for_inference", "optimized_execution", "save", "script", "script_if_tracing", "script_method", "set_fusion_strategy", "strict_fusion",
    "trace", "trace_module", "unused", "wait",
]  # fmt: skip

T = TypeVar("T")
is_scripting = is_tracing = onednn_fusion_enabled = passing_through.no
_NO_FILES = (
    "there is no TorchScript in torchgrad_jax. Save a module's state_dict() by torch.save and make the module by its Python class; for a compiled "
    "program in a file, give torchgrad_jax.to_jax(module) to jax.export"
)
_PROGRAM, _EXPORT = "Please switch to `torch.compile` or `torch.export`.", "Please switch to `torch.export`."
_COMPILE = "Please use `torch.compile` instead."


class Error(Exception):
    """Never raised: for `except`."""


class ScriptWarning(Warning):
    """Never warned of: for filters."""


class TracerWarning(ScriptWarning):
    """Never warned of: for filters."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Does nothing."""


class ScriptFunction:
    """Never made: what `script` gives is the function itself."""

    def __init__(self) -> None:
        raise NotImplementedError(f"torch.jit.ScriptFunction: {_NO_FILES}")


class CompilationUnit:
    """NotImplementedError: functions from TorchScript's source."""

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        raise NotImplementedError(f"torch.jit.CompilationUnit: {_NO_FILES}")


class Attribute(typing.NamedTuple):
    """A value and its type; an attribute of a module that is one is what PyTorch's compiler takes the type from."""

    value: Any
    type: Any


# ---------------------------------------------------------------------- what is compiled


def _deprecated(name: str, instead: str) -> None:
    warn_user(f"`torch.jit.{name}` is deprecated. {instead}", DeprecationWarning)


def _cannot_be_saved(*args: Any, **kwargs: Any) -> typing.NoReturn:
    """NotImplementedError, always: the `save` of what was scripted or traced."""
    raise NotImplementedError(f"save: {_NO_FILES}")


def _with_save(obj: T) -> T:
    """`obj`, whose `save`, unless it has one, says that there is none."""
    if hasattr(obj, "__dict__") and not hasattr(obj, "save"):
        obj.__dict__["save"] = _cannot_be_saved
    return obj


def script(obj: T, optimize: None = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> T:
    """The function, class or module itself. It is not checked against TorchScript's rules."""
    _deprecated("script", _PROGRAM)
    return obj if type(obj) is type else _with_save(obj)


def trace(func: T, example_inputs: Any = None, *args: Any, **kwargs: Any) -> T:
    """The function or module itself, which follows its Python conditions at each call: nothing is fixed by the example."""
    _deprecated("trace", _PROGRAM)
    return _with_save(func)


def trace_module(mod: T, inputs: Any, *args: Any, **kwargs: Any) -> T:
    """The module itself."""
    _deprecated("trace_method", _PROGRAM)
    return _with_save(mod)


def export(fn: T) -> T:
    """The method itself."""
    return fn


script_if_tracing = _script_if_tracing = export


def script_method(fn: T) -> T:
    """The method itself."""
    _deprecated("script_method", _PROGRAM)
    return fn


def interface(obj: T) -> T:
    """The class itself."""
    _deprecated("interface", _COMPILE)
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Decorator, with arguments or without, that gives back the function."""
    return drop if callable(drop) else lambda fn: fn


def unused(fn: T) -> T:
    """The function itself."""
    return fn


def freeze(mod: T, preserved_attrs: Any = None, optimize_numerics: bool = True) -> T:
    """The module itself. RuntimeError for one in training mode."""
    _deprecated("freeze", _COMPILE)
    if getattr(mod, "training", False):
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing.")
    return mod


def optimize_for_inference(mod: T, other_methods: Any = None) -> T:
    """The module itself."""
    _deprecated("optimize_for_inference", _COMPILE)
    return mod


def save(m: Any, f: Any, _extra_files: Any = None) -> typing.NoReturn:
    """NotImplementedError, always: there is no TorchScript to save."""
    _deprecated("save", _EXPORT)
    raise NotImplementedError(f"torch.jit.save: {_NO_FILES}")


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> typing.NoReturn:
    """NotImplementedError: there is nothing that runs TorchScript. ValueError for a file that does not exist."""
    _deprecated("load", _EXPORT)
    if type(f) is str and not os.path.exists(f):
        raise ValueError(f"The provided filename {f} does not exist")
    raise NotImplementedError(f"torch.jit.load: {_NO_FILES}")


_overload = _overload_method = passing_through.decorator
export_opnames = passing_through.refused("torch.jit.export_opnames", _NO_FILES)


# ---------------------------------------------------------------------- within what is compiled


def annotate(the_type: Any, the_value: T) -> T:
    """The value itself."""
    return the_value


_is_a = isinstance


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether `obj` is of a class, of one of a tuple, or of a list, dict, tuple or Optional of classes; elements are asked, too."""
    if _is_a(target_type, tuple):
        return any(isinstance(obj, one) for one in target_type)
    origin, of = typing.get_origin(target_type), typing.get_args(target_type)
    if origin is None:
        return target_type is Any or _is_a(obj, target_type or type(None))
    if origin is typing.Union or origin.__name__ == "UnionType":
        return any(isinstance(obj, one) for one in of)
    if not _is_a(obj, origin):
        return False
    if _is_a(obj, dict):
        return all(isinstance(key, of[0]) and isinstance(value, of[1]) for key, value in obj.items())
    if _is_a(obj, tuple):
        return len(obj) == len(of) and all(map(isinstance, obj, of))
    return all(isinstance(item, of[0]) for item in obj)


def fork(func: Callable[..., T], *args: Any, **kwargs: Any) -> Any:
    """Call the function now; `wait` gives its result."""
    _deprecated("fork", _COMPILE)
    future = PlainFuture([])
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Any) -> Any:
    """The result of what `fork` called."""
    _deprecated("wait", _COMPILE)
    return future.wait()


# ---------------------------------------------------------------------- options


def enable_onednn_fusion(enabled: bool) -> None:
    """Does nothing: XLA fuses."""


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Does nothing: XLA fuses. Returns PyTorch's default."""
    _deprecated("set_fusion_strategy", _COMPILE)
    return [("STATIC", 20), ("DYNAMIC", 20)]


@contextmanager
def fuser(name: str) -> Iterator[None]:
    """A block in which XLA fuses as ever."""
    yield


@contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A block in which XLA optimizes as ever."""
    yield


class strict_fusion:
    """A block in which XLA fuses as ever."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        pass


# ---------------------------------------------------------------------- the module


def __getattr__(name: str) -> Any:
    """`ScriptModule`: a plain module by another name. It is made when it is asked for, since it loads `nn`."""
    if name not in ("ScriptModule", "RecursiveScriptModule", "TracedModule", "TopLevelTracedModule"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if "ScriptModule" not in globals():
        said = "A module as any other; what `script` gives is none, but the user's module itself."
        globals()["ScriptModule"] = type("ScriptModule", (nn.Module,), {"__module__": __name__, "__doc__": said})
    base = globals()["ScriptModule"]
    return globals().setdefault(name, base if name == "ScriptModule" else type(name, (base,), {"__module__": __name__, "__doc__": "Never made."}))


class _Callable(ModuleType):
    """The module as the function that `torchgrad_jax.jit` is too."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return jit(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
