"""Errors that depend on values: examined when the program has run, and raised where what depends on them is looked at."""

from __future__ import annotations

import sys
import warnings

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.epoch import Epoch
from torchgrad_jax.runtime.recorder import Step

_PACKAGE = __name__.partition(".")[0]


def note_check(epoch: Epoch, step: Step) -> None:
    """Remember the user's line of an operation that checks values. Where checks are made at once, run it and raise what it finds."""
    recorder = epoch.recorder
    if recorder.epoch is epoch:  # else code that ran in between has looked
        epoch.lines[step.slot] = user_line()
    if modes.checks == "now" or modes.execution == "eager":
        if recorder.epoch is epoch:
            recorder.flush("check")
        if epoch.first_failure is not None:
            raise epoch.first_failure.error()


def user_line() -> str:
    """``file:line`` of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn_user(text: str, category: type[Warning] = UserWarning, further: int = 0) -> None:
    """A warning that points at the innermost line outside this package, or `further` calls out."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level + further)


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """A UserWarning the first time."""
    if text not in _warned:
        _warned.add(text)
        warn_user(text)
