"""What is told of functions under `jit`: what became of their calls."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from typing import Any

from torchgrad_jax.explain.data import Jitted, Traced
from torchgrad_jax.explain.programs import operators
from torchgrad_jax.lifting.jitting import living
from torchgrad_jax.runtime.observing.differences import shown
from torchgrad_jax.runtime.structure import calls_to, inputs_of


class JittedRecord:
    """What became of a function's calls while somebody watched, from which line, and how often."""

    def __init__(self) -> None:
        self.events: Counter[tuple[str, str]] = Counter()

    def happened(self, event: str, line: str) -> None:
        """Once more, at this line."""
        self.events[event, line] += 1


def watched(records: Mapping[Any, JittedRecord], spent: Mapping[Any, Mapping[str, float]]) -> list[Jitted]:
    """What is told of the functions that were traced or run. spent: on each of their programs."""
    found = []
    for function in {**dict.fromkeys(living), **dict.fromkeys(records)}:
        record = records.get(function)
        if record is not None or any([entry in spent for entry in entries(function)]):
            found.append(described(function, record or JittedRecord(), spent))
    return found


def described(function: Any, record: JittedRecord, spent: Mapping[Any, Mapping[str, float]]) -> Jitted:
    """What is told of one."""
    inner = function._function
    code = getattr(inspect.unwrap(getattr(inner, "forward", inner)), "__code__", None)
    return Jitted(
        function.name or getattr(inner, "__qualname__", type(inner).__name__), f"{code.co_filename}:{code.co_firstlineno}" if code else "",
        [_program(entry, spent.get(entry, {})) for entry in reversed(entries(function))],
        [{"event": event, "line": line, "times": times} for (event, line), times in record.events.items()], function.recompilations,
    )  # fmt: skip


def _program(entry: Any, spent: Mapping[str, float]) -> Traced:
    lifted = entry.lifted
    calls, outputs = calls_to(lifted.step, entry.wanted)
    made = {c.slot + i: aval for c in calls for i, aval in enumerate(c.signature.avals)}
    return Traced(
        dict(operators(calls)), [shown(lifted.leaf_avals[i]) for i in inputs_of(calls, outputs)], [shown(made[o]) for o in outputs if o in made],
        entry.function is not None, int(spent.get("runs", 0)), spent.get("tracing", 0.0) + spent.get("compiling", 0.0), spent.get("running", 0.0),
    )  # fmt: skip


def entries(function: Any) -> list[Any]:
    """The programs that it has, the latest first."""
    return [entry for kind in reversed(function._kinds.values()) for _, entry in kind.entries]
