"""`torch.profiler.itt`: tasks of the user's for Intel's VTune, by the package ``ittapi``."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """Whether ``ittapi`` is installed."""
    return importlib.util.find_spec("ittapi") is not None


@cache
def _domain() -> tuple[Any, Any]:
    try:
        package = importlib.import_module("ittapi")
    except ImportError as error:
        raise RuntimeError("ITT functions need the package 'ittapi', which is not installed: pip install ittapi") from error
    return package, package.domain("PyTorch")


def range_push(msg: str) -> None:
    """Begin a task within those that have begun. RuntimeError where ``ittapi`` is not installed."""
    package, domain = _domain()
    package.task_begin(domain, package.string_handle(msg))


def range_pop() -> None:
    """End the innermost task."""
    package, domain = _domain()
    package.task_end(domain)


def mark(msg: str) -> None:
    """Note that something happened."""
    range_push(msg)
    range_pop()


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A task around what takes place within. Further arguments are put into `msg` as `str.format` does."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
