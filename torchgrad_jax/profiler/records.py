"""What is noted of something that took place, and what is to be noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Record:
    """Something that took place, from `start` to `end` in nanoseconds. kind: PyTorch's word for it in traces. Other fields: see FunctionEvent.

    note: of a program, why it ran and of what it consists, by `describe` once the profile is over. shown: whether it is an event of its own; a call
    in which nothing took place is none.
    """

    __slots__ = (
        "name", "kind", "scope", "sequence", "thread", "fwd_thread", "start", "end", "shapes", "inputs", "stack", "flops", "note", "shown", "place",
        "bound", "describe",
    )  # fmt: skip

    def __init__(self, name: str, kind: str, scope: int, sequence: int, fwd_thread: int, shapes: Any, inputs: Any) -> None:
        self.name, self.kind, self.scope, self.sequence, self.fwd_thread = name, kind, scope, sequence, fwd_thread
        self.shapes, self.inputs = shapes, inputs
        self.stack: list[str] = []
        self.flops = 0
        self.note: dict[str, Any] = {}
        self.describe: Callable[[], dict[str, Any]] | None = None
        self.shown = True
        self.bound: Any = None
        self.start = self.end = 0
        self.thread = self.place = 0


class Options:
    """What a profile is to record beside names and times."""

    def __init__(
        self, shapes: bool = False, flops: bool = False, memory: bool = False, stack: bool = False, modules: bool = False, fused: bool = False,
        annotate: Callable[[str], Any] | None = None,
    ) -> None:  # fmt: skip
        self.shapes, self.flops, self.memory, self.stack, self.modules, self.fused = shapes, flops, memory, stack, modules, fused
        self.annotate = annotate


def shown_records(collector: Any) -> list[Record]:
    """The records that are events, each over at the latest when the profile is."""
    found = []
    for record in collector.records:
        if record.shown:
            record.end = record.end or collector.ended
            if record.describe is not None:
                record.note, record.describe = record.describe(), None
            found.append(record)
    return sorted(found, key=lambda r: (r.start, -r.end))
