"""The structure of a program: its operations once those made of others are taken apart, what goes in and out, and when each array is last used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.runtime.operation import Expansion, Signature, expansion
from torchgrad_jax.runtime.recording.step import Step

# A Python number among a program's: which of its arrays of numbers (by NumPy's kind), and the place in it.
Number = tuple[str, int]


class Call:
    """One operation of a program, with the same fields as a Step but no place in the tree of Steps.

    args: slots (results of earlier calls from 0 on, the program's inputs as -1, -2, ...), and the type of each Python number. `numbers`: for each of
    these its place among the program's numbers. Results take the slots from `slot` up to `end`.
    """

    __slots__ = ("signature", "args", "numbers", "slot", "end")

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
    read = {-1 - a for c in calls for a in c.args if type(a) is int and a < 0}
    return sorted(read.union([-1 - slot for slot in outputs if slot < 0]))


def last_uses(calls: list[Any], outputs: Sequence[int]) -> list[tuple[int, ...]]:
    """For each call the slots that nothing after it reads."""
    kept = set(outputs)
    last: dict[int, int] = {}
    for i, call in enumerate(calls):
        for a in call.args:
            if type(a) is int:
                last[a] = i
        for slot in range(call.slot, call.end):
            last.setdefault(slot, i)
    dying: list[list[int]] = [[] for _ in calls]
    for slot, i in last.items():
        if slot not in kept:
            dying[i].append(slot)
    return [tuple(d) for d in dying]


def operands(env: dict[int, Any], numbers: dict[str, Any], call: Any, args: Sequence[Any] = ()) -> list[Any]:
    """The operands of a call: of the arrays in `env` by slot, and of the arrays of numbers by kind. args: in the place of its own."""
    args = args or call.args
    if not call.numbers:
        return [env[a] for a in args]
    places = iter(call.numbers)
    found = []
    for a in args:
        if type(a) is int:
            found.append(env[a])
        else:
            kind, place = next(places)
            found.append(numbers[kind][place])
    return found


def store(env: dict[int, Any], call: Any, outs: Sequence[Any], flags: list[Any]) -> None:
    """Put the results of a call into `env`, and the outcome of its check, which comes last if it has one, into `flags`."""
    if call.signature.check is not None:
        flags.append(outs[-1])
        outs = outs[:-1]
    for i, out in enumerate(outs):
        env[call.slot + i] = out


def _steps_to(step: Step | None) -> list[Step]:
    found = []
    while step is not None:
        if step.signature is not None:
            found.append(step)
        step = step.parent
    found.reverse()
    return found


def _needed(calls: list[Any], wanted: set[int]) -> list[Any]:
    """Of these calls those that the `wanted` slots and all checks depend on. `wanted` becomes all slots that are needed."""
    found = []
    for call in reversed(calls):
        slot, end = call.slot, call.end
        if slot in wanted or call.signature.check is not None or (end - slot > 1 and not wanted.isdisjoint(range(slot, end))):
            wanted.update([a for a in call.args if type(a) is int])
            found.append(call)
    found.reverse()
    return found


def _taken_apart(steps: list[Step]) -> tuple[list[Any], dict[int, int]]:
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


def _insert(calls: list[Any], whole: Step, known: Expansion, renamed: dict[int, int], free: int) -> int:
    """Append the parts of `whole` to `calls`. Returns the next slot that is free."""
    given: list[Any] = [renamed.get(a, a) for a in whole.args]
    numbered = iter(whole.numbers)
    number_of = {i: next(numbered) for i, a in enumerate(whole.args) if type(a) is not int}
    of_numbers = iter(known.numbers)
    at = free

    def outer(slot: int) -> int:
        return at + slot if slot >= 0 else given[known.operands[-1 - slot]]

    for part in known.steps:
        args, numbers = [], []
        for a in part.args:
            if type(a) is int:
                args.append(outer(a))
            else:
                args.append(a)
                numbers.append(number_of[next(of_numbers)])
        calls.append(Call(part.signature, tuple(args), tuple(numbers), at + part.slot, at + part.end))
    for i, slot in enumerate(known.results):
        renamed[whole.slot + i] = outer(slot)
    return max([at + part.end for part in known.steps], default=at)
