"""What is told of functions under `jit`: what became of their calls."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from typing import Any

from torchgrad_jax.explain.data import Jitted
from torchgrad_jax.lifting.jitting import living


class JittedRecord:
    """What became of a function's calls while somebody watched, from which line, and how often."""

    def __init__(self) -> None:
        self.events: Counter[tuple[str, str]] = Counter()

    def happened(self, event: str, line: str) -> None:
        """Once more, at this line."""
        self.events[event, line] += 1


def watched(records: Mapping[Any, JittedRecord], spent: Mapping[Any, Counter[str]]) -> list[Jitted]:
    """What is told of the functions that were traced or run. spent: on each of their programs."""
    found = []
    for function in {**dict.fromkeys(living), **dict.fromkeys(records)}:
        counts: Counter[str] = Counter()
        for entry in entries(function):
            counts.update(spent.get(entry, {}))
        record = records.get(function)
        if record is not None or counts:
            found.append(described(function, record or JittedRecord(), counts))
    return found


def described(function: Any, record: JittedRecord, spent: Counter[str]) -> Jitted:
    """What is told of one."""
    programs = entries(function)
    inner = function._function
    code = getattr(inspect.unwrap(getattr(inner, "forward", inner)), "__code__", None)
    return Jitted(
        getattr(inner, "__qualname__", type(inner).__name__), f"{code.co_filename}:{code.co_firstlineno}" if code else "", len(programs),
        sum([one.function is not None for one in programs]), int(spent["runs"]), spent["tracing"] + spent["compiling"], spent["running"],
        [{"event": event, "line": line, "times": times} for (event, line), times in record.events.items()], function.recompilations,
    )  # fmt: skip


def entries(function: Any) -> list[Any]:
    """The programs that it has."""
    return [entry for kind in function._kinds.values() for _, entry in kind.entries]
