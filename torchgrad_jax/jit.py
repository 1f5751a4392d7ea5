"""`torch.jit` without TorchScript: its decorators give back what they are given, and what they decorate runs as Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Annotated, Any, Final, TypeVar

from torchgrad_jax.lifting.jitting import jit
from torchgrad_jax.runtime import passing_through

__all__ = [
    "Attribute", "Final", "annotate", "export", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance",
    "onednn_fusion_enabled",
    "optimize_for_inference", "script", "script_if_tracing", "script_method", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

T = TypeVar("T")
is_scripting = is_tracing = onednn_fusion_enabled = passing_through.no
Attribute = Annotated


def script(obj: T, *args: Any, **kwargs: Any) -> T:
    """The function, class or module itself. It is not checked against TorchScript's rules."""
    return obj


def trace(func: T, example_inputs: Any = None, *args: Any, **kwargs: Any) -> T:
    """The function or module itself, which follows its Python conditions at each call: nothing is fixed by the example."""
    return func


trace_module = trace


def export(fn: T) -> T:
    """The method itself."""
    return fn


script_if_tracing = script_method = interface = export


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Decorator, with arguments or without, that gives back the function."""
    return drop if callable(drop) else lambda fn: fn


def unused(fn: T) -> T:
    """The function itself."""
    return fn


def freeze(mod: T, *args: Any, **kwargs: Any) -> T:
    """The module itself. RuntimeError for one in training mode."""
    if getattr(mod, "training", False):
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing.")
    return mod


def optimize_for_inference(mod: T, *args: Any, **kwargs: Any) -> T:
    """The module itself."""
    return mod


def annotate(the_type: Any, the_value: T) -> T:
    """The value itself."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's `isinstance`, for classes that are no parametrized generics."""
    import builtins

    return builtins.isinstance(obj, target_type)


def fork(func: Callable[..., T], *args: Any, **kwargs: Any) -> Any:
    """Call the function now; `wait` gives its result."""
    return _Done(func(*args, **kwargs))


def wait(future: Any) -> Any:
    """The result of what `fork` called."""
    return future.wait()


class _Done:
    def __init__(self, value: Any) -> None:
        self._value = value

    def wait(self) -> Any:
        return self._value


class _Callable(ModuleType):
    """The module as the function that `torchgrad_jax.jit` is too."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return jit(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
