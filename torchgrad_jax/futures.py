"""`torch.futures`: a value that will be there, within this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


class Future(Generic[T]):
    """A value that another thread, or later code, sets. devices: accepted; values lie wherever they lie."""

    def __init__(self, *, devices: Any = None) -> None:
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

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A Future of what `callback` returns for this one, once it is done."""
        following: Future[Any] = Future()

        def call(done: Future[T]) -> None:
            try:
                following.set_result(callback(done))
            except Exception as error:
                following.set_exception(error)

        self.add_done_callback(call)
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call `callback` with this Future once it is done, at once if it is."""
        with self._lock:
            if not self.done():
                self._callbacks.append(callback)
                return
        callback(self)

    def set_result(self, result: Any) -> None:
        """Set the value. RuntimeError where one is there."""
        self._complete(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set what `wait` raises. AssertionError for what is no exception."""
        assert isinstance(result, Exception), f"{result} is of type {type(result)}, not an Exception."
        self._complete(None, result)

    def _complete(self, result: Any, error: BaseException | None) -> None:
        with self._lock:
            if self.done():
                raise RuntimeError("Attempting to mark a completed Future as complete again. Note that a Future can only be marked completed once.")
            self._result, self._error = result, error
            self._there.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A Future of the list of these, done when all are."""
    whole: Future[list[Future[Any]]] = Future()
    missing = [len(futures)]
    lock = threading.Lock()

    def one(_: Any) -> None:
        with lock:
            missing[0] -= 1
            last = missing[0] == 0
        if last:
            whole.set_result(futures)

    for future in futures:
        future.add_done_callback(one)
    if not futures:
        whole.set_result(futures)
    return whole


def wait_all(futures: Iterable[Future[Any]]) -> list[Any]:
    """The values of all of them, waited for."""
    return [future.wait() for future in futures]
