"""A program with loops, run by the interpreter: a body is one list of calls for every length, which the first few iterations make of it.

Nothing is compiled, and a new length has nothing to be planned or merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from torchgrad_jax.runtime.baseline import Merged, quietly
from torchgrad_jax.runtime.baseline.copying import own
from torchgrad_jax.runtime.baseline.cost import ChainCosts
from torchgrad_jax.runtime.interpreted import Named, as_one_list, first_failure, may_multiply
from torchgrad_jax.runtime.rolling.rolled import Operation, Plan, Reference, RolledLoop


class Looped:
    """The lists of calls of all programs whose Plans differ in their capacity alone. plans: for each operation's signature its plan of the baseline
    tier, None: run by XLA."""

    __slots__ = ("_lists", "_multiplies", "_plan")

    def __init__(self, plan: Plan, plans: dict[Any, Any]) -> None:
        self._plan = plan
        read_later, loops = _read_later(plan), 0
        self._lists: list[Straight | Repeated] = []
        for kind, items in groupby(plan.items, type):
            if kind is Operation:
                self._lists.append(Straight(list(items), plans, read_later))
                continue
            for loop in items:
                self._lists.append(Repeated(loop, plans, loops))
                loops += 1
        self._multiplies = any([may_multiply(sig, baseline) for sig, baseline in plans.items()])

    def __call__(self, capacity: int, sizes: Sequence[int], numbers: dict[str, np.ndarray], inputs: list[Any], stacks: list[list[Any]]) -> list[Any]:
        """The outputs of the plan, all iterations' as a list, and the outcome of the checks if there are any. See `rolled.function`."""
        inputs, stacks = list(map(np.asarray, inputs)), [list(map(np.asarray, stack)) for stack in stacks]
        return quietly(self._multiplies, self._run, Run(self._plan, capacity, sizes, numbers, inputs, stacks))

    def work(self, sizes: Sequence[int]) -> tuple[int, ChainCosts] | None:
        """How many calls a run makes, and what its chains take. None until a run has shown it."""
        if not all([one.merged.final for one in self._lists]):
            return None
        turns = [one.turns(sizes) for one in self._lists]
        calls = sum([n * one.merged.size for n, one in zip(turns, self._lists, strict=True)])
        costs = [[n * cost for cost in one.merged.costs] for n, one in zip(turns, self._lists, strict=True)]
        return calls, ChainCosts(*map(sum, zip(*costs, strict=True)))

    def _run(self, run: Run) -> list[Any]:
        for one in self._lists:
            one.carry_out(run)
        outs = [run.results[out[1:]] if type(out) is tuple and out[0] == "whole" else own(run.read(out)) for out in self._plan.outputs]
        return [*outs, first_failure(run.flags)] if self._plan.checked else outs


class Run:
    """What a run has computed so far. env: results by slot; results: of each iteration, by loop and number in the body; flags: outcomes of checks."""

    def __init__(
        self, plan: Plan, capacity: int, sizes: Sequence[int], numbers: dict[str, np.ndarray], inputs: list[Any], stacks: list[list[Any]]
    ) -> None:
        self.sizes, self.numbers, self.inputs, self.stacks = sizes, numbers, inputs, stacks
        self._capacity = capacity
        self._columns = {kind: columns for kind, columns, _ in plan.numbers}
        self.env: dict[int, Any] = {}
        self.results: dict[tuple[int, int], list[Any]] = {}
        self.last: dict[tuple[int, int], Any] = {}
        self.flags: list[Any] = []

    def read(self, ref: Reference) -> Any:
        """The value of a reference of the program."""
        if type(ref) is int:
            return self.env[ref]
        kind = ref[0]
        if kind == "input":
            return self.inputs[ref[1]]
        if kind == "number":
            return self.numbers[ref[1]][self._columns[ref[1]] * self._capacity + ref[2]]
        if kind == "last":
            return self.last[ref[1], ref[2]]
        assert kind == "pick", ref
        return self.results[ref[1], ref[2]][self.sizes[ref[3]]]

    def series(self, ref: Reference, count: int) -> Any:
        """The values of a reference of a body that are another one in each iteration."""
        kind = ref[0]
        if kind == "column":
            begin = ref[2] * self._capacity
            return self.numbers[ref[1]][begin : begin + count]
        if kind == "stack":
            return self.stacks[ref[1]]
        if kind == "spread":
            return [self.read(one) for one in ref[1]]
        assert kind == "buffer", ref
        kept, begin, step = self.results[ref[1], ref[2]], self.sizes[ref[3]], ref[4]
        return [kept[begin + step * t] for t in range(count)]


class Straight:
    """Operations outside of loops, one after the other."""

    __slots__ = ("_checks", "_outputs", "_reads", "merged")

    def __init__(self, operations: Sequence[Any], plans: dict[Any, Any], read_later: set[int]) -> None:
        made = {slot for op in operations for slot in range(op.slot, op.end)}
        self._reads = _read(operations, made)
        self._outputs = sorted(made & read_later)
        self.merged, self._checks = _merged(operations, plans, self._reads, self._outputs)

    def turns(self, sizes: Sequence[int]) -> int:
        """How often they are run."""
        return 1

    def carry_out(self, run: Run) -> None:
        """Run them once."""
        found = self.merged([run.read(ref) for ref in self._reads])
        count = len(self._outputs)
        run.env.update(zip(self._outputs, found[:count], strict=True))
        run.flags += found[count:]


class Repeated:
    """A loop. fixed: the places of operands that are the same in all iterations, with their references; carried: of those that are carried over, with
    the number among these; varied: of the others, with their references in the body. following: for each value that is carried over its place among
    the results of an iteration, or -1, -2, ... among its operands. kept, last: the numbers of results of which each iteration's is wanted, and of
    which the last one's, with their places."""

    __slots__ = ("_carried", "_checks", "_fixed", "_following", "_initial", "_kept", "_last", "_number", "_trip", "_varied", "_width", "merged")

    def __init__(self, loop: Any, plans: dict[Any, Any], number: int) -> None:
        self._number, self._trip = number, loop.trip
        self._initial = [initial for initial, _ in loop.carries]
        sources = [source for _, source in loop.carries]
        kept, carried = [result for result, _ in loop.kept], [source for source in sources if type(source) is int]
        last = list(dict.fromkeys([*kept, *[result for result, _ in loop.last], *carried]))
        made = {slot for op in loop.body for slot in range(op.slot, op.end)}
        reads = list(dict.fromkeys([*_read(loop.body, made), *[source for source in sources if type(source) is tuple]]))
        self.merged, self._checks = _merged(loop.body, plans, reads, last)
        place = {result: i for i, result in enumerate(last)} | {ref: -1 - i for i, ref in enumerate(reads)}
        self._width = len(reads)
        self._fixed = [(i, ref[1]) for i, ref in enumerate(reads) if ref[0] == "outer"]
        self._carried = [(i, ref[1]) for i, ref in enumerate(reads) if ref[0] == "carry"]
        self._varied = [(i, ref) for i, ref in enumerate(reads) if ref[0] not in ("outer", "carry")]
        self._following = [place[source] for source in sources]
        self._kept = [(result, place[result]) for result in kept]
        self._last = [(result, place[result]) for result in last]

    def turns(self, sizes: Sequence[int]) -> int:
        """How many iterations there are."""
        return sizes[self._trip]

    def carry_out(self, run: Run) -> None:
        """Run all iterations."""
        count, number = self.turns(run.sizes), self._number
        given: list[Any] = [None] * self._width
        for place, ref in self._fixed:
            given[place] = run.read(ref)
        state = [run.read(ref) for ref in self._initial]
        varied = [(place, run.series(ref, count)) for place, ref in self._varied]
        kept = [(run.results.setdefault((number, result), []), place) for result, place in self._kept]
        results: list[Any] = []
        for t in range(count):
            for place, series in varied:
                given[place] = series[t]
            for place, i in self._carried:
                given[place] = state[i]
            results = self.merged(given.copy())
            state = [results[i] if i >= 0 else given[-1 - i] for i in self._following]
            for one, place in kept:
                one.append(results[place])
            if self._checks:
                run.flags += results[-self._checks :]
        run.last.update([((number, result), results[place]) for result, place in self._last])


def _merged(operations: Sequence[Operation], plans: dict[Any, Any], reads: list[Reference], results: list[int]) -> tuple[Merged, int]:
    """Operations as one list of calls from what they read to their results. See `as_one_list`."""
    return as_one_list([Named(op.signature, plans[op.signature], op.args, op.slot, op.end) for op in operations], reads, results)


def _read(operations: Iterable[Operation], made: set[int]) -> list[Reference]:
    """What they read that is not their own."""
    return list(dict.fromkeys([ref for op in operations for ref in op.args if type(ref) is tuple or ref not in made]))


def _read_later(plan: Plan) -> set[int]:
    """The results outside of loops that loops, other stretches or the caller read."""
    loops = [item for item in plan.items if type(item) is RolledLoop]
    read: list[Reference] = [*plan.outputs]
    for loop in loops:
        refs = [ref for op in loop.body for ref in op.args] + [source for _, source in loop.carries]
        read += [initial for initial, _ in loop.carries]
        read += [ref[1] for ref in refs if type(ref) is tuple and ref[0] == "outer"]
        read += [one for ref in refs if type(ref) is tuple and ref[0] == "spread" for one in ref[1]]
    read += [ref for item in plan.items if type(item) is Operation for ref in item.args]
    return {ref for ref in read if type(ref) is int}
