"""Calls of modules as events: ``nn.Module: Linear_0`` around what the first Linear that is called does."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torchgrad_jax.nn.modules.calling import register_module_forward_hook, register_module_forward_pre_hook
from torchgrad_jax.runtime.recorder import per_thread

_names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_counts: dict[str, int] = {}
_profiles = 0
_handles: list[Any] = []
_open: dict[int, list[Any]] = {}


def join() -> None:
    """A profile that is about to begin wants calls of modules."""
    global _profiles
    _profiles += 1
    if _profiles == 1:
        _handles[:] = [register_module_forward_pre_hook(_before), register_module_forward_hook(_after, always_call=True)]


def leave() -> None:
    """It is over."""
    global _profiles
    _profiles -= 1
    if not _profiles:
        for handle in _handles:
            handle.remove()
        _handles.clear()
        _open.clear()


def name_of(module: Any) -> str:
    """``nn.Module: Linear_0``: the class, and a number among the modules of that class."""
    found = _names.get(module)
    if found is None:
        kind = type(module).__name__
        number = _counts.get(kind, 0)
        _counts[kind] = number + 1
        found = _names[module] = f"nn.Module: {kind}_{number}"
    return found


def _before(module: Any, args: Any) -> None:
    watch = per_thread.recorder.flags.watch
    if hasattr(watch, "begin_module"):
        _open.setdefault(id(watch), []).append((watch, module, watch.begin_module(name_of(module))))


def _after(module: Any, args: Any, output: Any) -> None:
    watch = per_thread.recorder.flags.watch
    stack = _open.get(id(watch), [])
    if stack and stack[-1][1] is module:
        watch.end(stack.pop()[2])
