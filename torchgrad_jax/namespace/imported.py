"""What an import leaves for the garbage collector: some 230,000 objects of JAX's and ours, of which none ever is garbage.

A full collection looks through them all, which takes 40 to 60 ms, and Python ends with several and takes them apart one by one: 0.35 s of each
process. Where nothing else was made before, they are frozen, so that no collection looks at them again, the last one included.
"""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

_PROGRAM = (ModuleType, FunctionType, BuiltinFunctionType, type, type(annotations))

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
    """Whether a program is at its imports: no function of it is running, and it has no names yet but of modules, functions and classes, and of what
    refers to nothing. What it had made before would stay until its end, where it refers to itself."""
    while frame is not None:
        if frame.f_code.co_name != "<module>" and not frame.f_code.co_filename.startswith("<frozen "):
            return False
        frame = frame.f_back
    program = getattr(sys.modules.get("__main__"), "__dict__", {})
    return all([_cannot_be_garbage(value) for name, value in list(program.items()) if not name.startswith("__")])


def _cannot_be_garbage(value: Any) -> bool:
    if type(value) is tuple:
        return all([_cannot_be_garbage(item) for item in value])
    return isinstance(value, _PROGRAM) or not gc.is_tracked(value)
