"""What an import leaves for the garbage collector: some 230,000 objects of JAX's and ours, of which none ever is garbage.

A full collection looks through them all, which takes 40 to 60 ms, and Python ends with several and takes them apart one by one: 0.35 s of each
process. Where nothing else was made before, they are frozen, so that no collection looks at them again, the last one included.
"""

from __future__ import annotations

import gc
import os
import sys
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

_PROGRAM = (ModuleType, FunctionType, BuiltinFunctionType, type, type(annotations))
_NOT_THE_PROGRAMS = ("<frozen ", os.path.dirname(os.__file__) + os.sep)
_PYTHONS = 2000  # more than Python 3.12 itself freezes at its start


def settle() -> None:
    """Make old, or freeze, all that there is."""
    if gc.get_freeze_count() > _PYTHONS:  # somebody else froze what is to stay, and may thaw it
        return
    gc.freeze()
    # What is old the first collection, in the user's first step, need not look through.
    if not _nothing_else_was_made(sys._getframe(1)):
        gc.unfreeze()


def _nothing_else_was_made(frame: FrameType | None) -> bool:
    """Whether a program is at its imports: no function of it is running, though some of Python's or of a package's may be, as of pytest's, and it
    has no names yet but of modules, functions and classes, and of what refers to nothing. What it had made before would stay until its end, where it
    refers to itself."""
    while frame is not None:
        code = frame.f_code
        if code.co_name != "<module>" and not code.co_filename.startswith(_NOT_THE_PROGRAMS) and "-packages" not in code.co_filename:
            return False
        frame = frame.f_back
    program = getattr(sys.modules.get("__main__"), "__dict__", {})
    return all([_cannot_be_garbage(value) for name, value in list(program.items()) if not name.startswith("__")])


def _cannot_be_garbage(value: Any) -> bool:
    if type(value) is tuple:
        return all([_cannot_be_garbage(item) for item in value])
    return isinstance(value, _PROGRAM) or not gc.is_tracked(value)
