"""`torch.nn.utils.init`: modules without initial values."""

from __future__ import annotations

import inspect
from typing import Any

from torchgrad_jax.functions.random import fork_rng
from torchgrad_jax.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """A module of a class, made of the arguments, whose parameters and buffers are not initialized; the random numbers that initializing takes are
    there for others. RuntimeError where the class is none of modules or takes no argument `device`."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    where = kwargs.pop("device", "cpu")
    with fork_rng():
        made = module_cls(*args, device=where, **kwargs)
    return made.to_empty(device=where)
