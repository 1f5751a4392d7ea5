"""Where the user's program is: the line from which something is asked for, and what is asked there."""

from __future__ import annotations

import linecache
import os
import sys
import threading
from functools import cache
from types import FrameType
from typing import NamedTuple

from torchgrad_jax.runtime.observing.observer import looked

_OURS = "torchgrad_jax"
# Whose lines are not the user's.
_LIBRARIES = frozenset((_OURS, "numpy", "jax", "jaxlib"))
# Methods under the names by which users call them.
_SPOKEN = {
    "__repr__": "print", "__str__": "print", "__format__": "print", "__bool__": "bool (if, while, and, or, not)", "__array__": "numpy.asarray",
    "__float__": "float()", "__int__": "int()", "__complex__": "complex()", "__index__": "an index", "__contains__": "in", "__iter__": "for",
    "__getitem__": "indexing", "getitem": "indexing", "__setitem__": "writing by index", "setitem": "writing by index",
    "__reduce__": "pickling",
}  # fmt: skip


class Place(NamedTuple):
    """A line of the user's: file, number, function. asked: the name of what it called of ours. thread: the name of its thread."""

    file: str
    line: int
    function: str
    asked: str
    thread: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "(no line of the program's)"


def here(looks: bool = False) -> Place:
    """The innermost line of this thread outside this package and the libraries beneath it. looks: whether a value is asked for there."""
    frame: FrameType | None = sys._getframe(1)
    called: list[FrameType] = []
    while frame is not None and _root(frame.f_globals.get("__name__", "")) in _LIBRARIES:
        called.append(frame)
        frame = frame.f_back
    thread = threading.current_thread().name
    asked = _asked(called) if looks else ""
    if frame is None:
        return Place("", 0, "", asked, thread)
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, asked, thread)


@cache
def _root(module: str) -> str:
    return module.partition(".")[0]


def _asked(called: list[FrameType]) -> str:
    """The outermost of these functions that has a name of PyTorch's: what calls it, in `calling/`, is the same for all."""
    for frame in reversed(called):
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if _root(module) != _OURS:
            continue
        if module.startswith(f"{_OURS}.lifting"):
            return "a function under jit or to_jax, which takes what is pending"
        if module == f"{_OURS}.interop":
            return "handing it to JAX"
        if frame.f_code is looked.__code__:
            name = frame.f_locals["asked"]
            return _SPOKEN.get(name, f"{name}()")
        if name in _SPOKEN:
            return _SPOKEN[name]
        if not module.startswith(f"{_OURS}.calling") and not name.startswith(("_", "<")):
            return f"{name}()"
    return ""


def source(place: str) -> str:
    """The text of the line ``file:number``, "" where that cannot be had."""
    file, _, line = place.rpartition(":")
    return linecache.getline(file, int(line)).strip() if line.isdigit() else ""


def short(place: str) -> str:
    """``file:number`` with the file's path as it is seen from the working directory, where it is beneath."""
    file, colon, line = place.rpartition(":")
    here = os.getcwd() + os.sep
    return f"{file.removeprefix(here)}{colon}{line}"
