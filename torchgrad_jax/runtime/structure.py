"""The structure of a program: its operations once those made of others are taken apart, what goes in and out, and when each array is last used.

A program that is new pays for this once, whether it comes back or not. This is compiled where there is a compiler (`torchgrad_jax/_typed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.runtime.operation import Expansion, Signature, expansion
from torchgrad_jax.runtime.recording.fields import CallFields, SignatureFields
from torchgrad_jax.runtime.recording.step import Step

# A Python number among a program's: which of its arrays of numbers (by NumPy's kind), and the place in it.
Number = tuple[str, int]


class Call(CallFields):
    """One operation of a program, with the fields of a Step that say what it is, but no place in the tree of Steps.

    args: slots (results of earlier calls from 0 on, the program's inputs as -1, -2, ...), and the type of each Python number. `numbers`: for each of
    these its place among the program's numbers. Results take the slots from `slot` up to `end`.
    """

    __slots__ = ()

    def __init__(self, signature: Signature, args: tuple[Any, ...], numbers: tuple[Number, ...], slot: int, end: int) -> None:
        self.signature, self.args, self.numbers, self.slot, self.end = signature, args, numbers, slot, end


def calls_to(step: Step | None, wanted: Sequence[int]) -> tuple[list[Any], list[int]]:
    """The operations that the `wanted` slots and all checks depend on, in order, and the slots that are wanted of them.

    An operation that is made of others is taken apart: its parts' results have slots of their own, past those of the program.
    """
    steps = _needed(_steps_to(step), set(wanted))
    if not any(hasattr(s.signature.bop, "expand") for s in steps):
        return steps, list(wanted)
    calls, renamed = _taken_apart(steps)
    outputs = [renamed.get(slot, slot) for slot in wanted]
    return _needed(calls, set(outputs)), outputs


def inputs_of(calls: list[Any], outputs: Sequence[int]) -> list[int]:
    """The program's inputs that are read, or are outputs as they are, as 0, 1, ..."""
    read: set[Any] = set()
    for c in calls:
        call: CallFields = c
        read.update(call.args)
    return sorted([-1 - a for a in read.union(outputs) if type(a) is int and a < 0])


def last_uses(calls: list[Any], outputs: Sequence[int]) -> list[Any]:
    """For each call the slots that nothing after it reads."""
    least, most = min(0, min(outputs, default=0)), 0  # of the slots
    for c in calls:
        call: CallFields = c
        most = max(most, call.end)
        for a in call.args:
            if type(a) is int and a < least:
                least = a
    met = bytearray(most - least)
    for slot in outputs:
        met[slot - least] = 1
    found: list[Any] = []
    for c in reversed(calls):
        call = c
        dying: list[Any] = []
        for a in call.args:
            if type(a) is int and not met[a - least]:
                met[a - least] = 1
                dying.append(a)
        for n in range(call.slot, call.end):
            if not met[n - least]:
                dying.append(n)
        found.append(dying)
    found.reverse()
    return found


def operands(env: dict[int, Any], numbers: dict[str, Any], call: Any, args: Sequence[Any] = ()) -> list[Any]:
    """The operands of a call: of the arrays in `env` by slot, and of the arrays of numbers by kind. args: in the place of its own."""
    given: CallFields = call
    args = args or given.args
    if not given.numbers:
        return [env[a] for a in args]
    places = iter(given.numbers)
    found: list[Any] = []
    for a in args:
        if type(a) is int:
            found.append(env[a])
        else:
            kind, place = next(places)
            found.append(numbers[kind][place])
    return found


def store(env: dict[int, Any], call: Any, outs: Sequence[Any], flags: list[Any]) -> None:
    """Put the results of a call into `env`, and the outcome of its check, which comes last if it has one, into `flags`."""
    made: CallFields = call
    sig: SignatureFields = made.signature
    if sig.check is not None:
        flags.append(outs[-1])
        outs = outs[:-1]
    if len(outs) == 1:
        env[made.slot] = outs[0]
        return
    for i, out in enumerate(outs):
        env[made.slot + i] = out


def _steps_to(step: Step | None) -> list[Any]:
    found: list[Any] = []
    while step is not None:
        if step.signature is not None:
            found.append(step)
        step = step.parent
    found.reverse()
    return found


def _needed(calls: list[Any], wanted: set[int]) -> list[Any]:
    """Of these calls those that the `wanted` slots and all checks depend on. `wanted` becomes all slots that are needed, and the types of numbers."""
    found: list[Any] = []
    for c in reversed(calls):
        call: CallFields = c
        sig: SignatureFields = call.signature
        slot, end = call.slot, call.end
        if slot in wanted or sig.check is not None or (end - slot > 1 and not wanted.isdisjoint(range(slot, end))):
            wanted.update(call.args)
            found.append(call)
    found.reverse()
    return found


def _taken_apart(steps: list[Any]) -> tuple[list[Any], dict[int, int]]:
    """The steps with the parts of those made of others in their place; and which slot a renamed one became."""
    renamed: dict[int, int] = {}
    calls: list[Any] = []
    free = steps[-1].end
    for step in steps:
        known = expansion(step.signature.bop, step.signature.specs)
        if known is not None:
            free = _insert(calls, step, known, renamed, free)
        elif renamed and any(a in renamed for a in step.args):
            calls.append(Call(step.signature, tuple([renamed.get(a, a) for a in step.args]), step.numbers, step.slot, step.end))
        else:
            calls.append(step)
    return calls, renamed


def _insert(calls: list[Any], whole: Step, known: Expansion, renamed: dict[int, int], at: int) -> int:
    """Append the parts of `whole` to `calls`, with slots from `at` on. Returns the next slot that is free."""
    given: list[Any] = [renamed.get(a, a) for a in whole.args]
    outer: list[Any] = [given[i] for i in known.operands]
    numbered = iter(whole.numbers)
    number_of = {i: next(numbered) for i, a in enumerate(whole.args) if type(a) is not int}
    numbers_left: list[Any] = [number_of[i] for i in reversed(known.numbers)]
    free = at
    for p in known.steps:
        part: CallFields = p
        args: list[Any] = []
        numbers: list[Any] = []
        for a in part.args:
            if type(a) is not int:
                args.append(a)
                numbers.append(numbers_left.pop())
            elif a >= 0:
                args.append(a + at)
            else:
                args.append(outer[-1 - a])
        first = part.slot
        call = Call(part.signature, tuple(args), tuple(numbers), first + at, part.end + at)
        free = max(free, call.end)
        calls.append(call)
    for i, slot in enumerate(known.results):
        renamed[whole.slot + i] = slot + at if slot >= 0 else outer[-1 - slot]
    return free
