"""What becomes of a program that was interrupted, ran out of memory, or failed a check: it is computed operation by operation.

What does not depend on the failure has its value. What does raises at every look at it. And what was written in place after a failed check, where
PyTorch would never have come, is taken back when the failure is told.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.baseline import quietly
from torchgrad_jax.runtime.interpreted import alone
from torchgrad_jax.runtime.recording.epoch import Epoch, Failure, running
from torchgrad_jax.runtime.recording.holding import held
from torchgrad_jax.runtime.recording.interrupts import from_outside
from torchgrad_jax.runtime.recording.step import KINDS
from torchgrad_jax.runtime.structure import calls_to, inputs_of, operands
from torchgrad_jax.runtime.user_code import line_of
from torchgrad_jax.runtime.value import Value, constant
from torchgrad_jax.runtime.worker import Promised


class CheckFailed(Exception):
    """A check of a program has failed; which one is found out operation by operation."""


def failure_of(value: Value) -> Failure | None:
    """The Failure that a Value is known to have ended in."""
    array, epoch = value.array, value.epoch
    slot = value.slot
    if type(array) is Promised:
        epoch, slot = array.epoch, array.slot
    elif array is not None:
        return None
    found = None if epoch is None or epoch.outcomes is None else epoch.outcomes.get(slot)
    return found if isinstance(found, Failure) else None


def recover(epoch: Epoch, *slots: int) -> None:
    """Compute the results of an epoch that are wanted, among them those of `slots`, one operation after the other, and keep what became of each."""
    wanted = dict.fromkeys([*slots, *(_held(epoch) if epoch.wanted is None else epoch.wanted), *_written(epoch)])
    calls, outputs = calls_to(epoch.step, list(wanted))
    inputs = inputs_of(calls, outputs)
    env: dict[int, Any] = {-1 - index: _input(epoch.leaves[index]) for index in inputs}
    numbers = _by_kind(epoch.numbers)
    first: tuple[int, Failure] | None = None
    for call in calls:
        given = operands(env, numbers, call)
        failed = next((g for g in given if isinstance(g, Failure)), None)
        outs: Any = ()
        if failed is None:
            outs, failed = _carried_out(call, given, epoch.lines)
            if failed is not None and call.signature.check is not None and first is None:
                first = call.end, failed
        env.update((s, outs[s - call.slot] if failed is None else failed) for s in range(call.slot, call.end))
    outcomes = {s: env[output] for s, output in zip(wanted, outputs, strict=True)}
    if first is not None:
        _take_back(epoch, outcomes, *first)
        epoch.first_failure = first[1]
    epoch.outcomes, epoch.ended = outcomes, True


def look_from_outside(epoch: Epoch, value: Value) -> None:
    """Compute one Value of another thread's pending program without touching that thread's recorder: all that is read here only grows."""
    apart = Epoch(epoch.recorder, epoch.step)
    apart.leaves, apart.numbers, apart.lines, apart.wanted = dict(epoch.leaves), dict(epoch.numbers), dict(epoch.lines), [value.slot]
    if epoch.ended:  # what was copied may not be all
        return
    try:
        value.array = apart.outcome(value.slot)
    except Exception as error:
        if epoch.recorder.epoch is epoch or from_outside(error):  # else it runs by now, and may have been given the memory that was read here
            raise


def _by_kind(numbers: dict[tuple[str, int], Any]) -> dict[str, Any]:
    found: dict[str, dict[int, Any]] = {}
    for (kind, place), number in numbers.items():
        found.setdefault(kind, {})[place] = np.asarray(number, KINDS[kind])
    return found


def _held(epoch: Epoch) -> list[int]:
    flags = zip(epoch.values, held(epoch.values), strict=True)
    return [slot for slot, flag in flags if flag and slot < epoch.step.end] + [twin.slot for twin in epoch.aliases]


def _written(epoch: Epoch) -> list[int]:
    return [old for _, _, old, _ in epoch.writes if type(old) is int and old >= 0]


def _input(leaf: Value) -> Any:
    known = failure_of(leaf)
    if known is not None:
        return known
    try:
        array = leaf.concrete()
        if getattr(array, "is_deleted", bool)():
            raise RuntimeError("the program that makes this tensor failed after memory that it was to be computed from had been given to its results")
    except Exception as error:
        if from_outside(error):
            raise
        return failure_of(leaf) or _failed(error)
    return array


def _carried_out(call: Any, given: list[Any], lines: dict[int, tuple[str, int] | None]) -> tuple[Any, Failure | None]:
    """The results of one operation, or its Failure."""
    sig = call.signature
    plan = sig.baseline if modes.interprets() else None
    try:
        if plan is None:
            outs = alone(sig, given)
        else:
            outs = [np.array(o) for o in quietly(True, plan, *[np.asarray(g) for g in given])]
            for o in outs:
                o.flags.writeable = False
        if sig.check is None:
            return outs, None
        bad, offender = np.asarray(outs[-1])
    except Exception as error:
        if from_outside(error):
            raise
        return (), _failed(error, f"{sig.bop.name} of {', '.join(map(str, sig.specs))}")
    if not bad:
        return outs, None
    return (), Failure(lambda: sig.check(int(offender)), line_of(lines.get(call.slot)))


class OutOfMemoryError(RuntimeError):
    """There is not enough memory for the result of an operation."""


class AcceleratorError(RuntimeError):
    """Never raised, for `except`: what a program's operations failed for is a RuntimeError."""


OutOfMemoryError.__module__ = AcceleratorError.__module__ = "torch"


def _failed(error: Exception, operation: str = "") -> Failure:
    if not operation:
        return Failure(lambda: RuntimeError(str(error)))
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error) or "Out of memory" in str(error):
        return Failure(lambda: OutOfMemoryError(f"not enough memory for the result of {operation}: {error}"))
    return Failure(lambda: RuntimeError(f"{operation} failed: {error}"))


def _take_back(epoch: Epoch, outcomes: dict[int, Any], end: int, failure: Failure) -> None:
    """Let `failure` take back all writes after the operation that ends at the slot `end`, and let what was written raise it until then."""
    seen = set()
    undo = []
    for position, reference, old, version in epoch.writes:
        storage = reference()
        if position < end or storage is None or reference in seen:
            continue
        seen.add(reference)
        written = storage.peek()
        if type(old) is int:
            leaf = epoch.leaves.get(-1 - old)
            if old >= 0:
                found = outcomes[old]
                if isinstance(found, Failure):
                    continue
                old = constant(found, epoch.values[old].aval if old in epoch.values else written.aval)
            elif leaf is None or isinstance(_input(leaf), Failure):
                continue
            else:
                old = leaf
        undo.append((reference, old, version))
        if written.epoch is epoch and not isinstance(outcomes.get(written.slot), Failure):
            outcomes[written.slot] = failure
            written.array = None
    failure.undo = undo


running.recover, running.look_from_outside = recover, look_from_outside
