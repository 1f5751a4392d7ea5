"""`torch.futures`: a value that will be there, within this process."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NoReturn, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
_log = logging.getLogger(__name__)


class PlainFuture:
    """`torch.Future`: what `then` and `torch.jit.fork` return, and the base of `torch.futures.Future`. devices: values lie wherever they lie."""

    def __init__(self, devices: Sequence[Any]) -> None:
        self._there, self._lock = threading.Event(), threading.Lock()
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], Any]] = []

    def done(self) -> bool:
        """Whether the value, or an exception in its place, has been set."""
        return self._there.is_set()

    def wait(self) -> Any:
        """The value, waited for. Raises the exception that was set in its place."""
        self._there.wait()
        return self.value()

    def value(self) -> Any:
        """The value. Raises the exception that was set in its place. RuntimeError where neither is there yet."""
        if not self.done():
            raise RuntimeError("Expected completed() to be true, but got false.")
        if self._error is not None:
            raise self._error
        return self._result

    def then(self, callback: Callable[[Any], Any]) -> PlainFuture:
        """A Future of what `callback` returns for this one, once it is done; of a RuntimeError with its words where it raises."""
        self._check(callback, "then", "torch._C.Future")
        following = PlainFuture([])

        def call(done: Any) -> None:
            try:
                result, error = callback(done), None
            except BaseException as raised:
                result, error = None, RuntimeError(_of_callback(raised))
            following._complete(result, error)

        self._when_done(call)
        return following

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Call `callback` with this Future once it is done, at once if it is. What it raises is logged."""
        self._check(callback, "add_done_callback", "None")

        def call(done: Any) -> None:
            try:
                callback(done)
            except BaseException as raised:
                _log.error(_of_callback(raised))

        self._when_done(call)

    def set_result(self, result: Any) -> None:
        """Set the value. RuntimeError where one is there."""
        self._complete(result, None)

    def _when_done(self, call: Callable[[Any], None]) -> None:
        with self._lock:
            if not self.done():
                self._callbacks.append(call)
                return
        call(self)

    def _complete(self, result: Any, error: BaseException | None) -> None:
        with self._lock:
            if self.done():
                raise RuntimeError("Attempting to mark a completed Future as complete again. Note that a Future can only be marked completed once.")
            self._result, self._error = result, error
            self._there.set()
            callbacks, self._callbacks = self._callbacks, []
        for call in callbacks:
            call(self)

    def _check(self, callback: Any, name: str, returned: str) -> None:
        if not callable(callback):
            raise TypeError(
                f"{name}(): incompatible function arguments. The following argument types are supported:\n"
                f"    1. (self: torch._C.Future, arg0: collections.abc.Callable) -> {returned}\n\nInvoked with: {self!r}, {callback!r}"
            )

    def __reduce__(self) -> NoReturn:
        raise RuntimeError("Can not pickle torch.futures.Future")


PlainFuture.__name__ = PlainFuture.__qualname__ = "Future"
PlainFuture.__module__ = "torch"


class Future(PlainFuture, Generic[T]):
    """A value that another thread, or later code, sets. devices: accepted; values lie wherever they lie."""

    def __init__(self, *, devices: Any = None) -> None:
        super().__init__([] if devices is None else list(devices))

    def set_exception(self, result: BaseException) -> None:
        """Set what `wait` raises. AssertionError for what is no exception."""
        assert isinstance(result, Exception), f"{result} is of type {type(result)}, not an Exception."
        self._complete(None, result)


def collect_all(futures: list[Future[Any]]) -> PlainFuture:
    """A Future of the list of these, done when all are; of the first exception in the list where there is one."""
    whole = PlainFuture([])
    missing = [len(futures)]
    lock = threading.Lock()

    def one(_: PlainFuture) -> None:
        with lock:
            missing[0] -= 1
            last = missing[0] == 0
        if last:
            whole._complete(futures, next((future._error for future in futures if future._error is not None), None))

    for future in futures:
        future._when_done(one)
    if not futures:
        whole.set_result(futures)
    return whole


def wait_all(futures: Iterable[Future[Any]]) -> list[Any]:
    """The values of all of them, waited for."""
    return [future.wait() for future in futures]


def _of_callback(error: BaseException) -> str:
    """PyTorch's words for what a callback raised, with where it did, innermost first."""
    frames = [] if error.__traceback__ is None else traceback.extract_tb(error.__traceback__.tb_next)
    where = "".join(f"  {frame.filename}({frame.lineno}): {frame.name}\n" for frame in reversed(frames))
    text = f"Got the following error when running the callback: {type(error).__name__}: {str(error) or '<EMPTY MESSAGE>'}"
    return f"{text}\n\nAt:\n{where}" if where else text
