"""Errors that depend on values: recorded beside the results, examined at the next look."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from torchgrad_jax.runtime.recorder import Recorder, Step
from torchgrad_jax.runtime.worker import Promised

# A loop that never looks must not pile up unexamined checks.
MAX_UNEXAMINED = 64
_PACKAGE = __name__.partition(".")[0]


def note_check(rec: Recorder, step: Step, operands: tuple[Any, ...]) -> None:
    """Remember how to make the error of a checked operation, and the user's line that recorded it."""
    assert step.signature is not None
    rec.checks.append((step.signature.check, user_line()))


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


def after_run(rec: Recorder, code: Any, checks: list[Any]) -> None:
    """Keep the result of a program's checks until somebody looks."""
    rec.failed_checks.append((code, checks))
    if len(rec.failed_checks) > MAX_UNEXAMINED:
        examine(rec)


def examine(rec: Recorder) -> None:
    """Raise the first error that a program of this thread has found since the last look. It does not wait for programs that are under way."""
    import numpy as np

    pending, rec.failed_checks = rec.failed_checks, []
    for i, (code, checks) in enumerate(pending):
        if type(code) is Promised:
            if not code.is_there and len(pending) <= MAX_UNEXAMINED:
                rec.failed_checks = pending[i:]
                return
            code = code.kept()
        which, offender = np.asarray(code)
        if which:
            make_error, line = checks[which - 1]
            error = make_error(int(offender))
            if line:
                error.add_note(f"raised by the operation recorded at {line}")
            raise error
