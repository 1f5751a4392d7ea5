"""What an explanation says, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Finding:
    """Something that costs time and can be helped. kind: "look", "new programs", "by xla", "jit" or "failed"; line: the user's, "" where there is
    none; times: how often it was so; advice: what to do."""

    kind: str
    text: str
    line: str
    times: int
    advice: str


@dataclass
class Flush:
    """What ran pending programs. reason: "look", "turn", "bound", "cut", "jit", "eager", ...; asked: what was called at the user's `line`, which is
    in `function` and reads `source`; thread: which ran it; times: how often, and how many recorded operations that was in all."""

    reason: str
    asked: str
    line: str
    function: str
    source: str
    thread: str
    times: int
    operations: int


@dataclass
class New:
    """Why a program was new. kind: "first", if nothing like it was known, "held results", "memory" (other inputs may be given away), "let go" (it was
    known, and forgotten), or a kind of `runtime.observing.differences`. text: in words. was, now: what differs; line: the user's that recorded it;
    relative: the number of the program that it is compared with, 0 for one from before."""

    kind: str
    text: str
    was: str = ""
    now: str = ""
    operator: str = ""
    line: str = ""
    relative: int = 0


@dataclass
class Program:
    """A program that was run. number: in the order of their first runs.

    operators: how often each occurs in it; inputs, results: dtypes and shapes. tier: "interpreted", "compiled", "rolled" (compiled with loops) or
    "stepped" (operation by operation, by XLA) as it was run last; because: why; by_xla: its operations that the interpreter left to XLA, and why.
    runs: how often it was run in each tier. compiled: how often it was compiled. Seconds: compile_seconds, run_seconds (without compiling), and
    computing beside the user's Python in our other thread, beside_seconds. new: why it was new; None where it was known before. lines: where it
    was run, and how often.
    """

    number: int
    operators: dict[str, int]
    inputs: list[str]
    results: list[str]
    tier: str
    because: str
    by_xla: dict[str, str]
    runs: dict[str, int]
    compiled: int
    compile_seconds: float
    run_seconds: float
    beside_seconds: float
    new: New | None
    lines: dict[str, int]


@dataclass
class Alone:
    """An operation that XLA compiled by itself: its operator, operands, how often that was done, and seconds."""

    operator: str
    operands: str
    times: int
    seconds: float


@dataclass
class Traced:
    """A program of a function under `jit`. operators, inputs, results: see Program; compiled: whether it is; runs: how often it was run."""

    operators: dict[str, int]
    inputs: list[str]
    results: list[str]
    compiled: bool
    runs: int
    compile_seconds: float
    run_seconds: float


@dataclass
class Jitted:
    """A function under `jit`. line: where it is defined. programs: those that there are of it now. events: what became of its calls, why, from which
    line, and how often. record: all that ever became of them, said once."""

    name: str
    line: str
    programs: list[Traced]
    events: list[dict[str, Any]] = field(default_factory=list)
    record: list[str] = field(default_factory=list)


@dataclass
class Data:
    """seconds: how long it was watched, None for a report of the whole process. recorded: operations that were recorded and run, by operator (a
    backward pass that is recorded whole is one). pending: operations that are recorded and not run yet. times: seconds by what this thread did.
    elsewhere: the same of other threads. left_out: programs that were run beyond those that are listed."""

    seconds: float | None
    recorded: dict[str, int]
    pending: int
    findings: list[Finding]
    flushes: list[Flush]
    programs: list[Program]
    left_out: int
    alone: list[Alone]
    jitted: list[Jitted]
    times: dict[str, float]
    elsewhere: dict[str, float]
    failed: int

    def as_dict(self) -> dict[str, Any]:
        """All of it as dicts, lists, strings and numbers: what JSON can hold."""
        return asdict(self)
