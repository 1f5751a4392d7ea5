"""`no_grad`, `enable_grad`, `set_grad_enabled`: whether operations extend the graph, per thread."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

from torchgrad_jax.runtime.recorder import per_thread

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "is_grad_enabled"]


def is_grad_enabled() -> bool:
    """Whether operations of the calling thread are recorded in a graph."""
    return per_thread.recorder.grad_enabled


class _GradMode:
    """A grad mode as context manager and as decorator of functions and generators."""

    mode: bool
    _previous: list[bool]

    def __init__(self) -> None:
        self._previous = []

    def clone(self) -> _GradMode:
        """A fresh context of the same mode: a decorated function may recurse."""
        return type(self)()

    def __enter__(self) -> None:
        rec = per_thread.recorder
        self._previous.append(rec.grad_enabled)
        rec.grad_enabled = self.mode

    def __exit__(self, *exc: object) -> None:
        per_thread.recorder.grad_enabled = self._previous.pop()

    def __call__(self, function: Any) -> Any:
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or methods. To "
                "preserve the current behavior of class decoration, you can directly decorate the `__init__` method and nothing else.",
                FutureWarning,
                stacklevel=2,
            )
            function.__init__ = self(function.__init__)
            return function
        if inspect.isgeneratorfunction(function):
            return _wrap_generator(self.clone, function)
        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return within


def _wrap_generator(context: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The mode holds while the generator's own code runs, not between its yields."""

    @functools.wraps(function)
    def generator(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        try:
            with context():
                response = made.send(None)
            while True:
                try:
                    request = yield response
                except GeneratorExit:
                    with context():
                        made.close()
                    raise
                except BaseException as error:
                    with context():
                        response = made.throw(error)
                else:
                    with context():
                        response = made.send(request)
        except StopIteration as stop:
            return stop.value

    return generator


class _OptionalCall(_GradMode):
    """`@no_grad` without parentheses decorates too."""

    def __new__(cls, function: Any = None) -> Any:
        made = object.__new__(cls)
        if function is None:
            return made
        made.__init__()
        return made(function)

    def __init__(self, function: Any = None) -> None:
        super().__init__()


class no_grad(_OptionalCall):
    """Operations inside are not recorded in a graph. Context manager and decorator."""

    mode = False


class enable_grad(_OptionalCall):
    """Operations inside are recorded in a graph, also within `no_grad`. Context manager and decorator."""

    mode = True


class set_grad_enabled(_GradMode):
    """Set grad mode: at once when called, until the end of the block when used as context manager."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): argument 'mode' must be bool, not {type(mode).__name__}")
        self.mode = mode
        rec = per_thread.recorder
        self._before = rec.grad_enabled
        rec.grad_enabled = mode

    def __enter__(self) -> None:
        self._previous.append(self._before)
        per_thread.recorder.grad_enabled = self.mode

    def __call__(self, function: Any) -> Any:
        per_thread.recorder.grad_enabled = self._before
        return super().__call__(function)

    def clone(self) -> _GradMode:
        """See _GradMode."""
        return type(self)(self.mode)
