"""Decorators of data pipes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torchgrad_jax.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

_F = TypeVar("_F", bound=Callable[..., Any])
_UNSURE = (
    "{} is non-deterministic{}, but you set 'guaranteed_datapipes_determinism'. You can turn off determinism for this DataPipe if that is acceptable "
    "for your application"
)


class functional_datapipe:
    """A decorator that makes a class of pipes a method, of this name, of all pipes of its kind."""

    name: str

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name
        self.enable_df_api_tracing = enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        for kind in (IterDataPipe, MapDataPipe):
            if isinstance(cls, type) and issubclass(cls, kind):
                kind.register_datapipe_as_function(self.name, cls, self.enable_df_api_tracing)
        return cls


_determinism = False


class guaranteed_datapipes_determinism:
    """A block in which no pipe can be made that is `non_deterministic`."""

    prev: bool

    def __init__(self) -> None:
        global _determinism
        self.prev = _determinism
        _determinism = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        global _determinism
        _determinism = self.prev


class non_deterministic:
    """A decorator of pipes whose samples are another time others; called with a function, those for whose arguments that is True.

    TypeError for what is no class of `IterDataPipe`, and when such a pipe is made where `guaranteed_datapipes_determinism` holds.
    """

    cls: type[IterDataPipe[Any]] | None = None
    deterministic_fn: Callable[..., bool]

    def __init__(self, arg: type[IterDataPipe[Any]] | Callable[..., bool]) -> None:
        if inspect.isclass(arg):
            if not issubclass(arg, IterDataPipe):
                raise TypeError(f"Only `IterDataPipe` can be decorated with `non_deterministic`, but {arg.__name__} is found")
            self.cls = arg
        elif callable(arg):
            self.deterministic_fn = arg
        else:
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is not None:
            if _determinism:
                raise TypeError(_UNSURE.format(self.cls.__name__, ""))
            return self.cls(*args, **kwargs)
        found = args[0]
        if not (inspect.isclass(found) and issubclass(found, IterDataPipe)):
            raise TypeError(f"Only `IterDataPipe` can be decorated, but {getattr(found, '__name__', found)} is found")
        self.cls = found
        return self.deterministic_wrapper_fn

    def deterministic_wrapper_fn(self, *args: Any, **kwargs: Any) -> IterDataPipe[Any]:
        """Make a pipe, unless its arguments make it a non-deterministic one."""
        unsure = self.deterministic_fn(*args, **kwargs)
        if not isinstance(unsure, bool):
            raise TypeError(f"deterministic_fn of `non_deterministic` decorator is required to return a boolean value, but {type(unsure)} is found")
        assert self.cls is not None
        if _determinism and unsure:
            raise TypeError(_UNSURE.format(self.cls.__name__, " with the inputs"))
        return self.cls(*args, **kwargs)


def argument_validation(f: _F) -> _F:
    """The function as it is: PyTorch's pipes have no types any more that arguments could be held against."""
    return f


def runtime_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """NotImplementedError: pipes have no types that samples could be held against. (PyTorch 2.13's raises an AttributeError when iterated.)"""
    raise NotImplementedError("runtime_validation holds samples against a type that data pipes no longer have: check them in `__iter__`")


class runtime_validation_disabled:
    """A block in which samples are not validated: nowhere are they."""

    prev: bool

    def __init__(self) -> None:
        self.prev = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        pass
