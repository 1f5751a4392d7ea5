"""An interrupt at a line of the library, wherever it may arrive while a statement of a program runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torchgrad_jax

LIBRARY = os.path.dirname(torchgrad_jax.__file__)


class Injected:
    """Runs functions with an error raised when a line of the library is about to be run.

    files: the ends of the paths in which lines count; none: all of the library's. lines: how many there were in the last run.
    """

    def __init__(self, error: Callable[[], BaseException], files: tuple[str, ...] = ()) -> None:
        self.error, self.files = error, files
        self.lines = 0
        self.place = ""

    def __call__(self, function: Callable[[], Any], at: int = 0) -> BaseException | None:
        """Call it, with the error at the `at`-th line, counted from 1 (0: nowhere). What it raised."""
        self.lines, self.place = 0, ""
        before = sys.gettrace()

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                self.lines += 1
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
