"""What `torch.compiler`, `torch._dynamo` and `torch.jit` are where every program is compiled by XLA anyway: they give back what they are given, keep
options as they are set, and refuse what cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def decorator(fn: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator, with arguments or without, that gives back the function."""
    return (lambda function: function) if fn is None else fn


def no() -> bool:
    """False."""
    return False


class Options:
    """Attributes that keep what they are set to and change nothing: XLA compiles everything. One that was never set is None, or what `known` says."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    @contextmanager
    def patch(self, changes: dict[str, Any] | str | None = None, value: Any = None, **more: Any) -> Iterator[None]:
        """Other values for a block, or for a decorated function; a dotted name is one of a nested group."""
        wanted = {**({changes: value} if isinstance(changes, str) else changes or {}), **more}
        places = [(_group(self, name), name.rpartition(".")[2], new) for name, new in wanted.items()]
        before = [getattr(group, name) for group, name, _ in places]
        for group, name, new in places:
            setattr(group, name, new)
        try:
            yield
        finally:
            for (group, name, _), old in zip(places, before, strict=True):
                setattr(group, name, old)


def _group(options: Options, name: str) -> Any:
    found: Any = options
    for part in name.split(".")[:-1]:
        found = getattr(found, part)
    return found


def refused(what: str, instead: str) -> Callable[..., Any]:
    """A function in the place of what PyTorch has and this package has not: NotImplementedError with what to do instead."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{what} is not available in torchgrad_jax: {instead}")

    refuse.__name__ = what.rpartition(".")[2]
    refuse.__doc__ = f"NotImplementedError, always: {instead}"
    return refuse


def never_made(what: str, instead: str, *bases: type) -> type:
    """A class in the place of one of PyTorch's that there are no objects of here. It may stand in annotations, be asked about by `isinstance`, and be
    derived from; making an object is a NotImplementedError with what to do instead. bases: those that PyTorch's has."""

    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{what} is not available in torchgrad_jax: {instead}")

    home, _, name = what.rpartition(".")
    told = f"Of this there are no objects here: {instead}."
    return type(name, bases, {"__new__": __new__, "__doc__": told, "__module__": home.replace("torch", "torchgrad_jax", 1)})
