"""Modules as what a function that is transformed reaches: see `lifting/purity.py`."""

from __future__ import annotations

import sys

from torchgrad_jax.lifting.purity import Impure, Reached, objects
from torchgrad_jax.lifting.reach import everywhere
from torchgrad_jax.lifting.replaced import watch
from torchgrad_jax.nn.modules.calling import has_hooks, hooks_of_all
from torchgrad_jax.nn.modules.module import Module

# Attributes of every module that its call does not ask for, beside hooks.
_UNASKED = frozenset((
    "_non_persistent_buffers_set", "_is_full_backward_hook", "_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
))  # fmt: skip
# Methods by which a class says for itself what a call, or an attribute, is.
_OWN_WAYS = ("__call__", "_call_impl", "_wrapped_call_impl", "__getattr__", "__getattribute__", "__setattr__", "__delattr__")


def look_into(found: Reached, module: Module) -> None:
    """Note what a call of the module reaches: all its attributes, and the code of its class where that is the user's. Impure where hooks see it."""
    if has_hooks(module):
        raise Impure
    kind = type(module)
    for cls in kind.__mro__:
        if _is_of_library(cls):
            if not str(getattr(cls.forward, "__module__", "")).startswith("torchgrad_jax."):  # the user has put another one in its place
                raise Impure
            break
        if any([name in vars(cls) for name in _OWN_WAYS]):
            raise Impure
        found.add_class(cls, "forward")
    found.containers.append(vars(module))
    for name, value in vars(module).items():
        if name not in _UNASKED:
            found.key.append(name)
            found.add(value)


def _is_of_library(cls: type) -> bool:
    """Whether this is a class of this package, and none that was made from one at run time."""
    return cls.__module__.startswith("torchgrad_jax.") and getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls


def begin() -> None:
    """Let functions reach modules from now on, and the hooks of all modules. What is put in the place of their names is noticed."""
    watch(sys.modules["torchgrad_jax.nn"])
    objects.append((Module, look_into))
    everywhere.extend(hooks_of_all)
