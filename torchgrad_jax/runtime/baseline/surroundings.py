"""What holds while plans are carried out: NumPy warns of nothing, and its BLAS uses one thread."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextvars import Context
from functools import cache
from typing import Any

import numpy as np

from torchgrad_jax.runtime.native import handlers, numpy_blas

# The function of OpenBLAS that sets the number of threads and returns what it was, by its names in NumPy's builds.
_NAMES = ("openblas_set_num_threads_local", "openblas_set_num_threads_local64_", "scipy_openblas_set_num_threads_local64_")


class _Quiet(threading.local):
    """A thread's context in which NumPy warns of nothing: entering it takes 0.1 us, `np.errstate` 2. context: None while it is in use."""

    def __init__(self) -> None:
        self.context: Context | None = None


_quiet = _Quiet()


def quietly(multiplies: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function` returns, called where NumPy warns of nothing and, if it `multiplies` matrices, its BLAS uses one thread.

    OpenBLAS hands every product of more than 260,000 multiply-adds to all processors and waits for them spinning: where another process has one of
    them, 64 x 128 x 128 took 25 ms in place of 0.04. What gains by threads is shared by ours (`native/sharing.pxd`).
    """
    context, _quiet.context = _quiet.context, None
    if context is None:  # the first in this thread, or a finalizer's within another
        context = quiet_context()
    try:
        return by_one_thread(context.run, function, *arguments) if multiplies else context.run(function, *arguments)
    finally:
        _quiet.context = context


def by_one_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function` returns, called while NumPy's BLAS uses one thread."""
    limit = _limit()
    if limit is None:
        return function(*arguments)
    threads = limit(1)
    try:
        return function(*arguments)
    finally:
        limit(threads)


def quiet_context() -> Context:
    """A context in which NumPy warns of nothing, and its arrays begin at lines of the processor's caches."""
    context = Context()
    context.run(np.errstate(all="ignore").__enter__)
    context.run(handlers.align)
    return context


@cache
def _limit() -> Callable[[int], int] | None:
    """Set the threads of NumPy's BLAS; None where it is none that is known, as on macOS."""
    function = numpy_blas.found(_NAMES)
    if function is not None:
        function.argtypes, function.restype = [ctypes.c_int], ctypes.c_int
    return function
