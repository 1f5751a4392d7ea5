"""Whether code asks for something that may be missing: an import inside of a `try` whose handlers are for that."""

from __future__ import annotations

import dis
import functools
from types import CodeType, FrameType

# Handlers of a whole program catch Exception, too: what counts is that missing imports are named, or that nothing is.
_MODULE, _NAME = frozenset(("ImportError", "ModuleNotFoundError")), frozenset(("ImportError",))


def is_guarded(frame: FrameType, module: bool) -> bool:
    """Whether the error that is raised at the instruction that `frame` executes is caught in the same function, by a handler for it or for
    everything: where a module is missing a ModuleNotFoundError, where a name in one is an ImportError."""
    return _is_guarded(frame.f_code, frame.f_lasti, _MODULE if module else _NAME)


@functools.lru_cache(1000)
def _is_guarded(code: CodeType, position: int, caught: frozenset[str]) -> bool:
    bytecode = dis.Bytecode(code)
    instructions = list(bytecode)
    entries = bytecode.exception_entries  # type: ignore[attr-defined] - of Python 3.11 and later
    seen: set[int] = set()
    while True:
        around = [e for e in entries if e.start <= position < e.end and e.target not in seen]
        if not around:
            return False
        handler = max(around, key=lambda e: (e.depth, e.start)).target
        if _catches([i for i in instructions if i.offset >= handler], caught):
            return True
        seen.add(handler)
        position = handler  # what it does not catch goes to the handler around it


def _catches(handler: list[dis.Instruction], caught: frozenset[str]) -> bool:
    """Whether a handler, which begins with these instructions, is for everything, or for one of these errors."""
    names: set[str] = set()
    for n, instruction in enumerate(handler):
        name = instruction.opname
        if name == "PUSH_EXC_INFO" and n or name == "RERAISE":  # the next handler, or the end of this one
            return False
        if n == 1 and name == "POP_TOP":  # `except:`
            return True
        if name in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_ATTR"):
            names.add(str(instruction.argval))
        elif name == "CHECK_EXC_MATCH":
            if names & caught:
                return True
            names = set()
    return False
