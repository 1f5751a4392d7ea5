"""The user's own lines: what errors and warnings name."""

from __future__ import annotations

import linecache
import os
import sys
import warnings
from collections.abc import Collection
from functools import lru_cache
from types import CodeType, FrameType

_PACKAGE = __name__.partition(".")[0]


def user_line() -> str:
    """``file:line`` of the innermost frame outside this package."""
    frame = innermost_frame()
    return "" if frame is None else line_of((frame.f_code.co_filename, frame.f_lineno))


def line_of(place: tuple[str, int] | None) -> str:
    """``file:line``, "" where there is none."""
    return "" if place is None else f"{place[0]}:{place[1]}"


def innermost_frame() -> FrameType | None:
    """The innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame is not None:
        ours = _ours.get(frame.f_globals.get("__name__", ""))
        if ours is False or (ours is None and not is_ours(frame)):
            return frame
        frame = frame.f_back
    return None


# By a module's name, whether it is of this package.
_ours: dict[str, bool] = {}


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is of this package."""
    module = frame.f_globals.get("__name__", "")
    found = _ours.get(module)
    if found is None:
        if len(_ours) >= 4096:
            _ours.clear()
        found = _ours[module] = module.partition(".")[0] == _PACKAGE
    return found


def user_stack() -> list[str]:
    """The frames outside this package, outermost first, as a traceback shows them; with ``TORCHGRAD_JAX_TRACEBACK=full`` all frames."""
    every = os.environ.get("TORCHGRAD_JAX_TRACEBACK") == "full"
    frame, found = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        if every or not code.co_filename.startswith(_FOLDED):
            linecache.lazycache(code.co_filename, frame.f_globals)
            found.append(_frame_text(code, frame.f_lineno))
        elif code.co_filename == _LAUNCHER:  # the program begins here
            break
        frame = frame.f_back
    return found[::-1]


_ROOT = os.path.dirname(os.path.dirname(__file__)) + os.sep
_FOLDED = (_ROOT, "<frozen runpy>")
# Of `torchgrad-jax run`.
_LAUNCHER = os.path.join(_ROOT, "cli", "run.py")


@lru_cache(maxsize=4096)
def _frame_text(code: CodeType, line: int) -> str:
    text = linecache.getline(code.co_filename, line).strip()
    return f'  File "{code.co_filename}", line {line}, in {code.co_name}\n' + (f"    {text}\n" if text else "")


def innermost_line(error: BaseException, others: Collection[str]) -> str:
    """``file:line`` of the innermost frame that an exception passed outside the packages `others`."""
    found, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in others:
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


# How many warnings there were, with those that are not given again.
said = 0


def warn_user(text: str, category: type[Warning] = UserWarning, further: int = 0) -> None:
    """A warning that points at the innermost line outside this package, or `further` calls out."""
    global said
    said += 1
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level + further)


_warned: set[str] = set()
_warn_always = False


def warn_once(text: str, details: str = "") -> None:
    """A UserWarning the first time, whatever the details, or (`set_warn_always`) each time."""
    global said
    said += 1
    if _warn_always or text not in _warned:
        _warned.add(text)
        warn_user(text + details)


def set_warn_always(b: bool, /) -> None:
    """Say whether warnings that are given once in a process are given each time. RuntimeError for what is no bool."""
    global _warn_always
    if not isinstance(b, bool):
        raise RuntimeError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    _warn_always = b


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` was told."""
    return _warn_always
