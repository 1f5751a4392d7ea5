"""What a function may ask for that no name in its code leads to: attributes by a name made at run time, content, states, settings."""

from __future__ import annotations

import contextvars
import dis
import pickle
import random
import types
from array import array
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

# So many bytes of arrays are watched, all together.
MOST_BYTES = 1 << 20
# By these attributes are read by their names as strings, or all of them.
_BY_STRING = frozenset(("getattr", "hasattr", "attrgetter", "methodcaller", "__getattribute__", "get_submodule", "get_parameter", "get_buffer"))
_ALL = frozenset(("__dict__", "vars"))
_LOADS = frozenset(("LOAD_CONST", "LOAD_FAST", "LOAD_DEREF"))
_ITERATING = frozenset(("builtins", "itertools"))
_OF_BYTES = (bytearray, memoryview, array)


@cache
def strings_asked(code: types.CodeType) -> tuple[str, ...]:
    """The strings by which code may read attributes."""
    if _BY_STRING.isdisjoint(code.co_names):
        return ()
    found: list[str] = []
    queue = list(code.co_consts)
    while queue:
        constant = queue.pop()
        if isinstance(constant, (tuple, frozenset)):
            queue += constant
        elif isinstance(constant, str):
            found += constant.split(".")
    return tuple([name for name in found if name.isidentifier()])


@cache
def asks_for_all(code: types.CodeType) -> bool:
    """Whether code reads attributes as a dict, or by a name that it makes."""
    if not _ALL.isdisjoint(code.co_names):
        return True
    if "getattr" not in code.co_names:
        return False
    instructions = list(dis.get_instructions(code))
    return any([i.argval == "getattr" and not _is_constant(instructions[at + 1 :]) for at, i in enumerate(instructions)])


def _is_constant(following: list[dis.Instruction]) -> bool:
    """Whether what a call is given as the second argument is a name that stands in the code."""
    depth = 0
    for at, i in enumerate(following):
        depth += dis.stack_effect(i.opcode, i.arg, jump=False)
        if depth == 2:
            after = next(n for n in following[at + 1 :] if n.opname not in _LOADS)
            return i.opname == "LOAD_CONST" and isinstance(i.argval, str) and "CALL" in after.opname
    return False


def content_of(o: Any, room: int) -> Callable[[], Any] | None:
    """What tells of an object of a library's what is in it, where that may change: bytes, if there are at most so many, or a variable's value."""
    if isinstance(o, np.ndarray):
        return o.tobytes if o.nbytes <= room and not o.dtype.hasobject else None
    if isinstance(o, _OF_BYTES):
        return partial(bytes, o)
    return partial(o.get, None) if isinstance(o, contextvars.ContextVar) else None


def state_of(o: Any) -> Callable[[], Any] | None:
    """What tells the state of an object that draws random numbers."""
    if isinstance(o, random.SystemRandom):
        return object
    if isinstance(o, random.Random):
        return o.getstate
    if isinstance(o, np.random.RandomState):
        return lambda: pickle.dumps(o.get_state(legacy=False))
    return (lambda: pickle.dumps(o.bit_generator.state)) if isinstance(o, np.random.Generator) else None


def is_consumed(o: Any) -> bool:
    """Whether an object is an iterator of Python's, which gives something else each time and does not tell what is left."""
    return isinstance(o, Iterator) and type(o).__module__ in _ITERATING


def is_setting(f: Any) -> bool:
    """Whether a function of the library tells how something is set."""
    name = f.__name__
    return name.endswith("_enabled") or name in ("get_deterministic_debug_mode", "get_num_threads")
