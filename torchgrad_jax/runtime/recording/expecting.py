"""Whether the user's code is ready for an error at the line that it is at: then what an operation finds wrong with values is told there.

A program that is recorded would tell it at the next look, and ``try: torch.linalg.cholesky(k)`` would go on past its ``except``.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType, FrameType
from typing import NamedTuple

from torchgrad_jax.runtime.user_code import innermost_frame, is_ours

# Exceptions that no operation raises for its values: who waits for these alone expects none of that.
_OTHERS = frozenset((
    "KeyboardInterrupt", "SystemExit", "GeneratorExit", "StopIteration", "StopAsyncIteration", "ImportError", "ModuleNotFoundError", "AttributeError",
    "NameError", "KeyError", "OSError", "FileNotFoundError", "EOFError", "MemoryError", "TimeoutError", "UnicodeDecodeError",
))  # fmt: skip
# What an `except` begins with: what names exceptions.
_NAMING = ("BUILD_TUPLE", "PUSH_NULL", "CACHE", "NOP", "EXTENDED_ARG")
# In how many functions a `try` is looked for where errors are part of what an operation is for.
_FUNCTIONS = 2


class _Guarded(NamedTuple):
    """Instructions from `start` up to `end`, in bytes, whose exceptions go to the `target`. kind: what begins there, see `_kind`."""

    start: int
    end: int
    target: int
    kind: str


def error_is_expected(often: bool, frame: FrameType | None = None) -> bool:
    """Whether the line that the innermost frame outside this package is at stands in a `try` with an `except` for what operations raise.

    frame: that one, where it is known. often: whether errors are part of what the operation is for, as with factorizations. Then functions around
    are asked, too, and a `with` block counts, as it may be ``with pytest.raises(...)``; most have nothing to do with errors.
    """
    frame = frame or innermost_frame()
    left, by_with = _FUNCTIONS if often else 1, often
    while frame is not None and left:
        if not is_ours(frame):
            if not {"except", "with" if by_with else "except"}.isdisjoint(_handlers(frame.f_code, frame.f_lasti)):
                return True
            left, by_with = left - 1, False
        frame = frame.f_back
    return False


@lru_cache(maxsize=4096)
def _handlers(code: CodeType, at: int) -> frozenset[str]:
    """What an exception at this instruction goes through, from one handler to the one around it."""
    found, passed = set(), set()
    while at not in passed:
        passed.add(at)
        for guarded in _guarded(code):
            if guarded.start <= at < guarded.end:
                found.add(guarded.kind)
                at = guarded.target
                break
    return frozenset(found)


@lru_cache(maxsize=4096)
def _guarded(code: CodeType) -> tuple[_Guarded, ...]:
    found = dis.Bytecode(code)
    entries = getattr(found, "exception_entries", ())
    if not entries:
        return ()
    instructions = list(found)
    places = {instruction.offset: i for i, instruction in enumerate(instructions)}
    return tuple([_Guarded(e.start, e.end, e.target, _kind(instructions, places, places[e.target])) for e in entries])


def _kind(instructions: list[dis.Instruction], places: dict[int, int], at: int) -> str:
    """What begins here: "with", "except" for what operations may raise, or "" for anything else, such as `finally`."""
    if instructions[at].opname != "PUSH_EXC_INFO":
        return ""
    at += 1
    if instructions[at].opname == "WITH_EXCEPT_START":
        return "with"
    while at < len(instructions):
        if instructions[at].opname == "POP_TOP":
            return "except"  # of no class in particular
        names = []
        while (name := instructions[at].opname).startswith("LOAD_") or name in _NAMING:
            names.append(str(instructions[at].argval))
            at += 1
        if name not in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH"):
            return ""
        if not _OTHERS.issuperset([n for n in names if n.isidentifier()]):
            return "except"
        target = instructions[at + 1].argval  # where it goes on if this one does not match
        if target not in places:
            return ""
        at = places[target]
    return ""
