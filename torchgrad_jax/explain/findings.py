"""What in the data of an explanation costs time and can be helped."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from torchgrad_jax.explain.data import Data, Finding, New, Program

# A line that looks so often is in a loop, and one that has so large a share in what ran holds it up.
LOOKS, SHARE = 3, 0.05
# So many programs that are new for one reason are worth saying: of results that are held differently, so many, since a loop's first turns have that.
NEW, HELD = 2, 4
# So many values are listed.
LISTED = 6

# What programs may be new because of, and what to do about it.
_ADVICE = {
    "shape": "each shape is a program of its own, and compiled when it has come often enough: pad to few sizes, or group what is of one size",
    "dtype": "convert once, before the loop",
    "device": "keep it on one device",
    "number": "give a Python number always as int or always as float",
    "static argument": "such an argument is part of the program: keep to few values, or hand it over as a tensor where that is possible",
    "order": "the order is part of the program: do the same in the same order each time",
    "operations": "a branch of Python's makes a program for each way through it: torch.where chooses within one",
    "operands": "which tensors an operation reads is part of the program: let the loop read the same ones each time",
    "held results": "which results somebody refers to is part of the program: let the same names be bound at each turn",
}
_OTHER = {"operations": "other operations", "operands": "other operands", "held results": "other results that are held"}


def other(kind: str) -> str:
    """What is another where programs differ in a `kind`."""
    return _OTHER.get(kind, f"another {kind}")


def findings(data: Data) -> list[Finding]:
    """What costs time and can be helped, the most frequent of a kind first."""
    return [*_looks(data), *_new_programs(data), *_under_jit(data), *_left_to_xla(data), *_failed(data)]


def _looks(data: Data) -> Iterator[Finding]:
    least = max(LOOKS, SHARE * sum([flush.times for flush in data.flushes if flush.reason != "wait"]))
    for flush in data.flushes:
        if flush.reason in ("look", "wait") and flush.times >= least:
            what = "ran what was pending" if flush.reason == "look" else "waited for a program that was under way"
            text = f"{flush.asked or 'a look at a value'} {what} {flush.times} times"
            advice = "the value is needed at once, so nothing is recorded meanwhile: keep the tensor, and look after the loop or now and then"
            yield Finding("look", text, flush.line, flush.times, advice)


def _new_programs(data: Data) -> Iterator[Finding]:
    def cause(program: Program) -> tuple[str, str, str]:
        new = program.new
        assert new is not None
        return new.kind, new.line, new.operator

    anew = sorted([p for p in data.programs if p.new is not None and p.new.kind in _ADVICE], key=cause)
    groups = [(key, list(group)) for key, group in groupby(anew, cause)]
    for (kind, line, _), group in sorted(groups, key=lambda one: -len(one[1])):
        if len(group) < (HELD if kind in ("held results", "operations") else NEW):
            continue
        compiled = sum([p.compiled > 0 for p in group])
        text = f"{len(group)} programs are new because of {other(kind)}: {_listed([p.new for p in group])}"
        text += f"; {compiled} of them were compiled" if compiled else ""
        yield Finding("new programs", text, line, len(group), _ADVICE[kind])


def _listed(causes: list[New | None]) -> str:
    first = causes[0]
    assert first is not None
    values = list(dict.fromkeys([v for new in causes if new is not None for v in (new.was, new.now) if v]))
    if len(values) <= 2 or first.kind in ("operations", "held results"):
        return first.text
    return f"{first.text}; in all {', '.join(values[:LISTED])}{', ...' if len(values) > LISTED else ''}"


def _under_jit(data: Data) -> Iterator[Finding]:
    for one in data.jitted:
        for event in one.events:
            if event["event"].startswith("not compiled"):
                advice = "docs/jit_and_jax.md says what can be compiled"
                yield Finding("jit", f"{one.name} is {event['event']}", event["line"], event["times"], advice)
        again = [e for e in one.events if e["event"].startswith(("traced again", "traced for other"))]
        times = sum([e["times"] for e in again])
        if times >= NEW:
            advice = "let what it is given and what it reaches stay alike, or hand over as a tensor what changes"
            yield Finding("jit", f"{one.name} was traced again {times} times: {_reasons(again)}", again[-1]["line"], times, advice)


def _reasons(events: list[dict[str, Any]]) -> str:
    told = list(dict.fromkeys([e["event"].partition(": ")[2] for e in events]))
    return "; ".join(told[:LISTED]) + ("; ..." if len(told) > LISTED else "")


def _left_to_xla(data: Data) -> Iterator[Finding]:
    names: dict[str, str] = {}
    runs = 0
    for program in data.programs:
        if program.by_xla:
            names.update(program.by_xla)
            runs += program.runs.get("interpreted", 0)
    if runs:
        told = ", ".join([f"{name} ({why})" for name, why in list(names.items())[:LISTED]])
        text = f"in programs that are interpreted XLA runs operations one by one: {told}"
        yield Finding("by xla", text, "", runs, "it compiles each of them once, for each shape")


def _failed(data: Data) -> Iterator[Finding]:
    if data.failed:
        text = f"{data.failed} programs did not come to their end, and what could be was computed operation by operation"
        yield Finding("failed", text, "", data.failed, "the error is raised where what depends on it is looked at")
