"""An interrupt at a line of the library, wherever it may arrive while a statement of a program runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torchgrad_jax

LIBRARY = os.path.dirname(torchgrad_jax.__file__)


def _leaving(frame: FrameType) -> bool:
    """Whether a `with` of the user's is about to be left, of which nothing is done yet: PyTorch's are Python too, and stay entered there."""
    code = frame.f_code
    first = code.co_name == "__exit__" and frame.f_lineno == code.co_firstlineno + 1
    return first and frame.f_back is not None and not frame.f_back.f_code.co_filename.startswith(LIBRARY)


class Injected:
    """Runs functions with an error raised when a line of the library is about to be run.

    files: the ends of the paths in which lines count; none: all of the library's. lines: how many there were in the last run. places:
    when each of them ran there, if it ran without an error.
    """

    def __init__(self, error: Callable[[], BaseException], files: tuple[str, ...] = ()) -> None:
        self.error, self.files = error, files
        self.lines = 0
        self.place = ""
        self.places: dict[Any, list[int]] = {}

    def __call__(self, function: Callable[[], Any], at: int = 0) -> BaseException | None:
        """Call it, with the error at the `at`-th line, counted from 1 (0: nowhere). What it raised."""
        self.lines, self.place, self.places = 0, "", {}
        before = sys.gettrace()

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line" and not _leaving(frame):
                self.lines += 1
                if not at:
                    self.places.setdefault((frame.f_code, frame.f_lineno), []).append(self.lines)
                if self.lines == at:
                    self.place = f"{frame.f_code.co_filename[len(LIBRARY) + 1 :]}:{frame.f_lineno} {frame.f_code.co_name}"
                    sys.settrace(before)
                    raise self.error()
            return line

        def call(frame: FrameType, event: str, argument: Any) -> Any:
            name = frame.f_code.co_filename
            return line if name.startswith(LIBRARY) and (not self.files or name.endswith(self.files)) else None

        sys.settrace(call)
        try:
            function()
        except BaseException as error:  # the injected one, or what came of it
            return error
        finally:
            sys.settrace(before)
        return None
