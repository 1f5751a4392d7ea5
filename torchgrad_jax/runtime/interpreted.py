"""A program run without compiling it whole: each operation by NumPy where the baseline tier has a plan for it, else by its own compiled function."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchgrad_jax.runtime import keeping, modes
from torchgrad_jax.runtime._jax_compat import call_x64, import_dialects
from torchgrad_jax.runtime.baseline import Merged, NumPyForm, Part, carry_out, quietly
from torchgrad_jax.runtime.baseline.converting import with_numbers
from torchgrad_jax.runtime.baseline.copying import own
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.observing.observer import COMPILING, TRACING, timed
from torchgrad_jax.runtime.recording.step import KINDS
from torchgrad_jax.runtime.stepping import step_through
from torchgrad_jax.runtime.structure import last_uses

# Up to this many bytes of results, what is not needed any more is dropped only where another result takes its place.
_KEEP_BYTES = 1 << 19
# From which run on a program of few operations, and one of more, is one list. With the chains that are found in it, that takes as long as it gains in
# some ten to twenty runs (of a transformer's 280 calls 18 ms, and 1.2 of 5.5 a run); of few operations it gains most of a run, and a third of what
# takes so many nanoseconds an operation, by estimate. Where forms stand for plans, each of which is a trace, it has to come back a few times more.
_FEW, _ONCE, _TRACED, _SOME, _LONG = 24, 2, 5, 11, 30_000
# What is smaller NumPy's BLAS does by one thread without being told.
_ONE_THREAD_ELEMENTS, _ONE_THREAD_PRODUCT = 8_192, 200_000


class Interpreted:
    """A program's calls with their plans (None: run by XLA), ready to be run.

    merged: all of them as one list, once they were run before; numbers: the places of the Python numbers that it is given after the inputs.
    multiplies: see `quietly`. runs: how often it was run, one by one or another way.
    """

    __slots__ = ("calls", "plans", "inputs", "outputs", "merged", "numbers", "multiplies", "runs", "_dying", "_checks", "_ready", "_soon")

    def __init__(self, calls: list[Any], plans: list[Any], inputs: list[int], outputs: list[int]) -> None:
        self.calls, self.plans, self.inputs, self.outputs = calls, plans, inputs, outputs
        self.runs = 0
        self._dying: Any = None
        self.merged: Merged | None = None
        self._ready: Any = None
        self.numbers: list[Any] = []
        self._soon = _TRACED if any([isinstance(plan, NumPyForm) and plan.planned for plan in plans]) else _ONCE
        self.multiplies = any([may_multiply(call.signature, plan) for call, plan in zip(calls, plans, strict=True)])

    def __call__(self, numbers: dict[str, np.ndarray], arrays: list[Any]) -> list[Any]:
        """The outputs, and the outcome of the checks if there are any. `arrays`: the inputs', emptied, so that each can be dropped in time."""
        if self.merged is not None:
            return quietly(self.multiplies, self._at_once, numbers, arrays)
        self.runs += 1
        if not any(self.plans):
            return self._one_by_one(numbers, arrays, lambda array: array, lambda array: array)
        if self.runs < (self._soon if len(self.calls) <= _FEW or self._takes_long() else _SOME):
            return quietly(self.multiplies, self._one_by_one, numbers, arrays, np.asarray, own)
        with timed(TRACING):
            self._merge()
        return quietly(self.multiplies, self._at_once, numbers, arrays)

    def _one_by_one(self, numbers: dict[str, np.ndarray], arrays: list[Any], read: Any, own: Any) -> list[Any]:
        if self._dying is None and _are_big([c.signature for c in self.calls]):
            self._dying = last_uses(self.calls, self.outputs)
        env = {-1 - index: read(array) for index, array in zip(self.inputs, arrays, strict=True)}
        arrays.clear()
        flags = step_through(self.calls, self.plans, self._dying, env, numbers, lambda sig, given: [read(o) for o in alone(sig, given)])
        results = [own(env[slot]) for slot in self.outputs]
        return [*results, first_failure(flags)] if flags else results

    def _takes_long(self) -> bool:
        return sum([plan.cost for plan in self.plans if plan is not None]) > _LONG * len(self.calls)

    def _merge(self) -> None:
        """Make one list of calls of it. Slots are named as in the program, numbers by their kind and place."""
        named, numbers = [], []
        for call, plan in zip(self.calls, self.plans, strict=True):
            names = iter(call.numbers)
            named.append(Named(call.signature, plan, [a if type(a) is int else next(names) for a in call.args], call.slot, call.end))
            numbers += call.numbers
        self.numbers = list(dict.fromkeys(numbers))
        self.merged, self._checks = as_one_list(named, [*[-1 - index for index in self.inputs], *self.numbers], self.outputs)

    def ready(self) -> tuple[list[Any], list[Any], list[int], list[Any]] | None:
        """The list of calls without those that do no more than convert a number, its template, the places of the outputs and of the checks' outcomes,
        and what makes each number of Python's. None until the list is final."""
        if self.merged is None or not self.merged.final:
            return None
        if self._ready is None:
            (calls, template, places), first = self.merged.ready, len(self.inputs)
            calls, made = with_numbers(calls, {first + i: KINDS[kind] for i, (kind, _) in enumerate(self.numbers)})
            self._ready = calls, template, places, [made[first + i] for i in range(len(self.numbers))]
        return self._ready

    def _at_once(self, numbers: dict[str, np.ndarray], arrays: list[Any]) -> list[Any]:
        assert self.merged is not None
        given = [np.asarray(a) for a in arrays]
        arrays.clear()
        ready = self.ready()
        if ready is None:
            found = self.merged([*given, *[numbers[kind][place] for kind, place in self.numbers]])
        else:
            calls, template, places, makers = ready
            plain = {kind: a.tolist() for kind, a in numbers.items()}
            given += [make(plain[kind][place]) for make, (kind, place) in zip(makers, self.numbers, strict=True)]
            values = template.copy()
            values[: len(given)] = given
            given.clear()  # so that each can be dropped
            carry_out(calls, values)
            found = [values[i] for i in places]
        results = [own(a) for a in found[: len(self.outputs)]]
        return [*results, first_failure(found[len(self.outputs) :])] if self._checks else results


class Named(NamedTuple):
    """An operation: its plan (None: run by XLA), the names of what it reads, and its results' slots, which are their names."""

    signature: Any
    plan: Any
    reads: Sequence[Hashable]
    slot: int
    end: int


def as_one_list(operations: Sequence[Named], inputs: Sequence[Hashable], outputs: Sequence[int]) -> tuple[Merged, int]:
    """Operations as one list of calls, from inputs to outputs and the outcomes of their checks, of which there are so many."""
    parts, checks = [], []
    for i, op in enumerate(operations):
        made: list[Any] = list(range(op.slot, op.end))
        if op.signature.check is not None:
            checks.append(("check", i))
            made.append(checks[-1])
        parts.append(Part(_by_xla(op.signature) if op.plan is None else op.signature.in_lists, op.reads, made))
    keeping.new_calls(len(parts))
    return Merged(parts, inputs, [*outputs, *checks], _are_big([op.signature for op in operations])), len(checks)


def _are_big(signatures: Sequence[Any]) -> bool:
    return sum([a.nbytes for sig in signatures for a in sig.avals]) > _KEEP_BYTES


def may_multiply(sig: Any, plan: Any) -> bool:
    """Whether BLAS may hand some of an operation to further threads. It does from 8,192 elements of one array on, or 262,144 multiply-adds, which
    of the sizes of three matrices are the root of the product."""
    if plan is None or not plan.multiplies:
        return plan is None
    sizes = sorted([a.size for a in (*sig.specs, *sig.avals) if not isinstance(a, type)])[-3:]
    return max(sizes, default=0) >= _ONE_THREAD_ELEMENTS or math.prod(sizes) >= _ONE_THREAD_PRODUCT**2


def _by_xla(sig: Any) -> Any:
    return lambda *given: [np.asarray(o) for o in alone(sig, given)]


def alone(sig: Any, given: Any) -> Any:
    """One operation by its own compiled function."""
    modes.refuse_xla(sig.bop.name)
    function, sig.used = sig.alone, keeping.now
    if not sig.warm:
        sig.warm = True
        counters.compiled_ops += 1
        keeping.compiled(sig, 1)
        with timed(COMPILING, sig):
            import_dialects()
            return call_x64(function, *given)
    return call_x64(function, *given)


def first_failure(flags: list[Any]) -> np.ndarray:
    """Of the outcomes of checks the first that failed, its number from 1 on, and what it told; zeros if there is none."""
    for i, flag in enumerate(flags):
        bad, offender = np.asarray(flag)
        if bad:
            return np.array([i + 1, offender])
    return np.zeros(2, np.int64)
