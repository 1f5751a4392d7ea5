"""Exceptions that come from outside of what they end: of a signal's handler, or of another thread.

A program that fails is no error of whoever had it run, so what it raises is kept for those who look at its results, and what is tried on stand-ins is
done again on the user's tensors. But a time limit (`signal.alarm` and a handler that raises) is for the one who set it, whichever line it ends.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from functools import partial
from types import CodeType
from typing import Any

# Whose code is run between a program's beginning and its end, and whose exceptions its operations end in.
_BELOW = frozenset({__name__.partition(".")[0], "torch", "jax", "jaxlib", "numpy", "ml_dtypes"})


def from_outside(error: BaseException) -> bool:
    """Whether an exception that ended code of ours is none of its own. Not asked of KeyboardInterrupt and its like, which always is."""
    handlers, frame, trace = set(_handlers()), None, error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code in handlers:
            return True
        trace = trace.tb_next
    # What another thread sends (`PyThreadState_SetAsyncExc`) has no frame of its own: it is of a class that nobody here raises.
    package = type(error).__module__.partition(".")[0]
    if package in _BELOW or package in sys.stdlib_module_names:
        return False
    return frame is None or frame.f_globals.get("__name__", "").partition(".")[0] in _BELOW


def _handlers() -> Iterator[CodeType]:
    """The code of the functions that signals are handled by."""
    for number in signal.valid_signals():
        function: Any = signal.getsignal(number)
        while isinstance(function, partial):
            function = function.func
        if callable(function) and not hasattr(function, "__code__"):  # a handler is None or a number where there is none
            function = type(function).__call__
        code = getattr(function, "__code__", None)
        if code is not None:
            yield code
