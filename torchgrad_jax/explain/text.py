"""The data of an explanation as text."""

from __future__ import annotations

from collections.abc import Iterator

from torchgrad_jax.explain.data import Data, Flush, Jitted, Program
from torchgrad_jax.explain.findings import other
from torchgrad_jax.explain.places import short, source

# So many rows of a list are shown.
ROWS = 12
# So many operators of a program, and inputs and results of it.
NAMES = 8

_REASONS = {
    "look": "look", "wait": "look at what is under way", "turn": "turn of a loop: the first operation after a backward",
    "jit": "a function under jit begins or ends", "bound": "too much was pending", "cut": "what comes next is known",
    "eager": "eager execution", "device": "another device",
    "mode": "another execution mode", "check": "a check of values", "synchronize": "synchronize()", "default dtype": "another default dtype",
}  # fmt: skip
_TIERS = {"rolled": "compiled with loops", "stepped": "by XLA, operation by operation"}
_TIMES = {
    "python": "Python: your program, and recording", "tracing": "tracing, and other work at first sight", "compiling": "compiling",
    "running": "running", "waiting": "waiting for what is under way", "computing": "running long programs, beside Python",
}  # fmt: skip


def text(data: Data) -> str:
    """What a person reads."""
    parts = [[_head(data)], _findings(data), _flushes(data), _programs(data), _alone(data), _jitted(data), _times(data)]
    return "\n\n".join(["\n".join(part) for part in parts if part])


def _head(data: Data) -> str:
    recorded = sum(data.recorded.values())
    runs = sum([f.times for f in data.flushes if f.reason != "wait"])
    programs = _count(len(data.programs), "program")
    found = f"torchgrad_jax.explain: {_count(recorded, 'recorded operation')}, run in {_count(runs, 'go', 'goes')} as {programs}"
    if data.seconds is not None:
        found += f", {_seconds(data.seconds)}"
    if recorded and data.seconds is not None:
        found += f"\nrecorded: {_named(data.recorded)}"
    if data.pending:
        found += f"\n{_count(data.pending, 'operation')} recorded and not run yet: nobody has asked for a value"
    return found


def _findings(data: Data) -> list[str]:
    if not data.findings:
        return []
    lines = ["What costs time"]
    for i, found in enumerate(data.findings, 1):
        lines.append(f"  {i}. {found.text}")
        if found.line:
            lines.append(f"     at {_line(found.line)}")
        lines.append(f"     {found.advice}")
    return lines


def _flushes(data: Data) -> list[str]:
    if not data.flushes:
        return []
    lines = ["What ran what was pending"]
    for flush in data.flushes[:ROWS]:
        lines.append(f"  {flush.times:>6} x  {_why(flush)}{_thread(data, flush)}")
        if flush.line:
            lines.append(f"            at {_line(flush.line)}")
    return [*lines, *_more(len(data.flushes) - ROWS, "line")]


def _why(flush: Flush) -> str:
    reason = _REASONS.get(flush.reason, flush.reason)
    return f"{reason}: {flush.asked}" if flush.asked else reason


def _thread(data: Data, flush: Flush) -> str:
    return f", in thread {flush.thread}" if len({f.thread for f in data.flushes}) > 1 else ""


def _programs(data: Data) -> list[str]:
    if not data.programs:
        return []
    lines = ["Programs"]
    longest = sorted(data.programs, key=lambda p: -(p.run_seconds + p.beside_seconds + p.compile_seconds))[:ROWS]
    for program in sorted(longest, key=_work, reverse=True):  # an order that does not depend on the clock
        lines += _program(program)
    return [*lines, *_more(len(data.programs) - ROWS, "program"), *([f"  and {data.left_out} runs of others"] if data.left_out else [])]


def _work(program: Program) -> tuple[int, int]:
    return sum(program.runs.values()) * sum(program.operators.values()), -program.number


def _program(program: Program) -> Iterator[str]:
    count = sum(program.operators.values())
    yield f"  #{program.number}  {_count(count, 'operation')}: {_named(program.operators)}"
    yield f"      inputs {_list(program.inputs)}; results {_list(program.results)}"
    runs = ", ".join([f"{n} x {_TIERS.get(tier, tier)}" for tier, n in program.runs.items()])
    again = f" {program.compiled} times" if program.compiled > 1 else ""
    took = f", compiled{again} in {_seconds(program.compile_seconds)}" if program.compiled else ""
    seconds = program.run_seconds + program.beside_seconds
    yield f"      run {runs or 'never to its end'}{f', {_seconds(seconds)} in all' if seconds else ''}{took}"
    yield f"      {_TIERS.get(program.tier, program.tier)}: {program.because}"
    if program.by_xla:
        yield f"      left to XLA: {', '.join([f'{name} ({why})' for name, why in program.by_xla.items()])}"
    new = program.new
    if new is not None:
        than = f"{other(new.kind)} than {f'#{new.relative}' if new.relative else 'one from before'}: "
        yield f"      new: {'' if new.kind in ('first', 'let go', 'backward') else than}{new.text}"
        if new.line:
            yield f"           at {_line(new.line)}"


def _alone(data: Data) -> list[str]:
    if not data.alone:
        return []
    seconds = sum([one.seconds for one in data.alone])
    lines = [f"Operations that XLA compiled by themselves: {len(data.alone)}, in {_seconds(seconds)}"]
    for one in sorted(data.alone, key=lambda one: -one.seconds)[:ROWS]:
        lines.append(f"  {one.operator}({one.operands})  {_seconds(one.seconds)}")
    return [*lines, *_more(len(data.alone) - ROWS, "operation")]


def _jitted(data: Data) -> list[str]:
    if not data.jitted:
        return []
    lines = ["Functions under jit"]
    for one in data.jitted[:ROWS]:
        lines += _function(one)
    return [*lines, *_more(len(data.jitted) - ROWS, "function")]


def _function(one: Jitted) -> Iterator[str]:
    yield f"  {one.name} ({short(one.line) or 'built in'})"
    for program in one.programs[:ROWS]:
        yield f"      {_count(sum(program.operators.values()), 'operation')}: {_named(program.operators)}"
        yield f"          inputs {_list(program.inputs)}; results {_list(program.results)}"
        took = f" in {_seconds(program.compile_seconds)}" if program.compile_seconds else ""
        runs = f", run {_count(program.runs, 'time')}, {_seconds(program.run_seconds)} in all" if program.runs else ""
        yield f"          {f'compiled{took}' if program.compiled else 'not called again, so not compiled'}{runs}"
    yield from _more(len(one.programs) - ROWS, "program")
    for event in one.events[:ROWS]:
        yield f"      {event['times']} x {event['event']}"
        if event["line"]:
            yield f"           called at {_line(event['line'])}"


def _times(data: Data) -> list[str]:
    if data.seconds is None:
        return []
    lines = ["Time", *[f"  {_seconds(data.times[name]):>10}  {what}" for name, what in _TIMES.items() if name in data.times]]
    if data.elsewhere:
        lines.append(f"  in other threads: {', '.join([f'{_seconds(s)} {name}' for name, s in data.elsewhere.items()])}")
    return lines


# ---------------------------------------------------------------------- in words


def _line(place: str) -> str:
    code = source(place)
    return f"{short(place)}  {code}" if code else short(place)


def _more(count: int, what: str) -> list[str]:
    return [f"  ... and {_count(count, 'more ' + what)}"] if count > 0 else []


def _named(operators: dict[str, int]) -> str:
    found = [name if n == 1 else f"{n} {name}" for name, n in operators.items()]
    return ", ".join(found[:NAMES]) + (", ..." if len(found) > NAMES else "")


def _list(specs: list[str]) -> str:
    return (", ".join(specs[:NAMES]) + (f", ... ({len(specs)} in all)" if len(specs) > NAMES else "")) or "none"


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _seconds(s: float) -> str:
    return f"{s:.2f} s" if s >= 1 else f"{s * 1e3:.3g} ms" if s >= 1e-3 else f"{s * 1e6:.3g} us"
