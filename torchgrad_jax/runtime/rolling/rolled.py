"""A program with loops, as a JAX function whose trip counts are data.

References: what an operation reads is an int, a result of its own list (the program's, or a body's), or a tuple:

- ("input", i), ("number", kind, i): the i-th input, the i-th of the numbers of a kind that stand alone;
- ("last", loop, result), ("pick", loop, result, size): a result of a loop, of its last iteration, or of the one that is the `size`-th of the sizes;

and in a body besides

- ("outer", reference): a reference of the program;
- ("carry", i): the i-th carried value;
- ("column", kind, i), ("stack", i): this iteration's of the i-th series of numbers, of the i-th stack of inputs;
- ("spread", references): this iteration's of as many references of the program as there are iterations;
- ("buffer", loop, result, size, step): the result of an earlier loop, of its iteration ``sizes[size] + step * t``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax import lax
from jax import numpy as jnp

from torchgrad_jax.runtime.compiling.exchanges import Exchange, exchanged_calls
from torchgrad_jax.runtime.compiling.kept import slots_to_keep
from torchgrad_jax.runtime.compiling.products import NONE
from torchgrad_jax.runtime.compiling.transposed import in_memory, transposed_slots
from torchgrad_jax.runtime.compiling.writes import kept_apart, reshaped_by
from torchgrad_jax.runtime.value import Aval

Reference = Any


class Operation(NamedTuple):
    """One operation: its results take the slots from `slot` up to `end` of its list."""

    signature: Any
    args: tuple[Reference, ...]
    slot: int
    end: int


class RolledLoop(NamedTuple):
    """A loop.

    trip: where its trip count is among the sizes. carries: for each carried value its initial one (a reference of the program) and its next one
    (of the body). kept: results of which each iteration's is wanted, last: of which the last iteration's, with their avals.
    """

    trip: int
    body: tuple[Operation, ...]
    carries: tuple[tuple[Reference, Reference], ...]
    kept: tuple[tuple[int, Aval], ...]
    last: tuple[tuple[int, Aval], ...]


class Plan(NamedTuple):
    """All that a rolled program's function depends on; equal plans are the same function.

    capacity: for how many iterations buffers have room. numbers: for each kind how many series and how many single ones. outputs: references, or
    ("whole", loop, result) for the results of all iterations.
    """

    capacity: int
    numbers: tuple[tuple[str, int, int], ...]
    inputs: int
    items: tuple[Operation | RolledLoop, ...]
    outputs: tuple[Reference, ...]
    checked: bool


def function(plan: Plan) -> Callable[..., list[Any]]:
    """The JAX function of the sizes, the arrays of numbers, the inputs and the stacks, to the outputs and the first failed check."""

    def rolled_program(sizes: Any, *arguments: Any) -> list[Any]:
        run = _Run(plan, sizes, arguments)
        run.operations(plan.items)
        outs = [run.whole(out) if type(out) is tuple and out[0] == "whole" else run.read(out) for out in plan.outputs]
        return [*outs, run.code] if plan.checked else outs

    return rolled_program


class _Run:
    """The program while it is traced.

    reshaped: how many elements the arrays have that are given other dimensions. env: results by slot. buffers, last: results of loops, by loop and
    number in the body. code: the first failed check, its number from 1 on and the offending value; checks: how many there were.
    """

    def __init__(self, plan: Plan, sizes: Any, arguments: tuple[Any, ...]) -> None:
        head = len(plan.numbers)
        self.plan, self.sizes = plan, sizes
        self.numbers = dict(zip([kind for kind, _, _ in plan.numbers], arguments[:head], strict=True))
        self.columns = {kind: columns for kind, columns, _ in plan.numbers}
        self.inputs, self.stacks = arguments[head : head + plan.inputs], arguments[head + plan.inputs :]
        self.reshaped = _reshaped(plan, self.stacks)
        self.env: dict[int, Any] = {}
        self.buffers: dict[tuple[int, int], Any] = {}
        self.last: dict[tuple[int, int], Any] = {}
        self.loops = 0
        self.checks: Any = 0
        self.code: Any = jnp.zeros(2, jnp.int64) if plan.checked else None

    def operations(self, items: tuple[Operation | RolledLoop, ...]) -> None:
        """Run the whole program."""
        read = set(self.plan.outputs).union(*[_outer(item) for item in items if type(item) is RolledLoop])
        later = [ref for ref in read if type(ref) is int]
        memory = _memory([item for item in items if type(item) is Operation], later, self.reshaped)
        for item in items:
            if type(item) is Operation:
                self.checks, self.code = _run(item, self.env, self.read, memory, self.checks, self.code)
            else:
                assert type(item) is RolledLoop
                self._loop(item)
                self.loops += 1

    def read(self, ref: Reference) -> Any:
        """The value of a reference of the program."""
        if type(ref) is int:
            return self.env[ref]
        kind = ref[0]
        if kind == "input":
            return self.inputs[ref[1]]
        if kind == "number":
            return self.numbers[ref[1]][self.columns[ref[1]] * self.plan.capacity + ref[2]]
        if kind == "last":
            return self.last[ref[1], ref[2]]
        assert kind == "pick", ref
        return _at(self.buffers[ref[1], ref[2]], self.sizes[ref[3]])

    def whole(self, ref: Reference) -> Any:
        """All iterations' results of a loop."""
        return self.buffers[ref[1], ref[2]]

    def _loop(self, loop: RolledLoop) -> None:
        capacity, trip = self.plan.capacity, self.sizes[loop.trip]
        outer = {ref: self.read(ref) for ref in _outer(loop)}
        spread = {ref: jnp.stack([outer[one] for one in ref[1]]) for ref in _spread(loop)}
        carried = {source: i for i, (_, source) in enumerate(loop.carries) if type(source) is int}
        known = {*carried, *[result for result, _ in loop.kept]}
        apart = [(result, aval) for result, aval in loop.last if result not in known]
        memory = _memory(list(loop.body), [*known, *[result for result, _ in apart]], self.reshaped)

        def body(t: Any, state: Any) -> Any:
            carries, kept, _, checks, code = state
            env: dict[int, Any] = {}

            def read(ref: Reference) -> Any:
                if type(ref) is int:
                    return env[ref]
                if ref[0] == "spread":
                    return _at(spread[ref], t)
                return carries[ref[1]] if ref[0] == "carry" else outer[ref[1]] if ref[0] == "outer" else self._iteration(ref, t)

            for op in loop.body:
                checks, code = _run(op, env, read, memory, checks, code)
            kept = [lax.dynamic_update_index_in_dim(buffer, env[result], t, 0) for buffer, (result, _) in zip(kept, loop.kept, strict=True)]
            return [read(source) for _, source in loop.carries], kept, [env[result] for result, _ in apart], checks, code

        begun = (
            [self.read(initial) for initial, _ in loop.carries],
            [jnp.zeros((capacity, *aval.shape), aval.dtype) for _, aval in loop.kept],
            [jnp.zeros(aval.shape, aval.dtype) for _, aval in apart],
            jnp.int64(self.checks) if self.plan.checked else None,
            self.code,
        )
        carries, kept, last, self.checks, self.code = lax.fori_loop(0, trip, body, begun)
        number = self.loops
        self.buffers |= {(number, result): buffer for (result, _), buffer in zip(loop.kept, kept, strict=True)}
        self.last |= {(number, result): _at(buffer, trip - 1) for (result, _), buffer in zip(loop.kept, kept, strict=True)}
        self.last |= {(number, result): carries[i] for result, i in carried.items()}
        self.last |= {(number, result): value for (result, _), value in zip(apart, last, strict=True)}

    def _iteration(self, ref: Reference, t: Any) -> Any:
        """What a reference of a body is in iteration `t`."""
        kind = ref[0]
        if kind == "column":
            return _at(self.numbers[ref[1]], ref[2] * self.plan.capacity + t)
        if kind == "stack":
            return _at(self.stacks[ref[1]], t)
        assert kind == "buffer", ref
        return _at(self.buffers[ref[1], ref[2]], self.sizes[ref[3]] + ref[4] * t)


class _Memory(NamedTuple):
    """The results that element-wise operations, and that all operations, read from memory; what `exchanged_calls` finds, and `kept_apart`."""

    transposed: set[int]
    shared: set[int]
    exchanged: dict[int, Exchange]
    same: dict[int, int]
    apart: set[int]


def _memory(operations: list[Operation], later: list[int], reshaped: frozenset[int]) -> _Memory:
    """Of one list of operations; `later`: results that are read behind it."""
    exchanged, same = exchanged_calls(operations, later)
    return _Memory(transposed_slots(operations), slots_to_keep(operations, later), exchanged, same, kept_apart(operations, reshaped))


def _reshaped(plan: Plan, stacks: Sequence[Any]) -> frozenset[int]:
    """By operations, and where one of many arrays is taken from a stack or put into a buffer."""
    loops = [item for item in plan.items if type(item) is RolledLoop]
    operations = [item for item in plan.items if type(item) is Operation] + [op for loop in loops for op in loop.body]
    kept = [aval.size for loop in loops for _, aval in loop.kept]
    return reshaped_by(operations).union(kept, [math.prod(stack.shape[1:]) for stack in stacks])


def _outer(loop: RolledLoop) -> set[Reference]:
    """What a loop reads of the program."""
    read = [ref for op in loop.body for ref in op.args] + [source for _, source in loop.carries]
    single = {ref[1] for ref in read if type(ref) is tuple and ref[0] == "outer"}
    return single.union([initial for initial, _ in loop.carries], *[ref[1] for ref in _spread(loop)])


def _spread(loop: RolledLoop) -> set[Reference]:
    return {ref for op in loop.body for ref in op.args if type(ref) is tuple and ref[0] == "spread"}


def _run(op: Operation, env: dict[int, Any], read: Callable[[Reference], Any], memory: _Memory, checks: Any, code: Any) -> tuple[Any, Any]:
    """Put the results of an operation into `env`. Returns the number of checks up to here, and the first failed one."""
    pointwise = memory.transposed and getattr(op.signature.bop, "pointwise", False)
    args, how = memory.exchanged.get(op.slot, (op.args, NONE))
    if op.slot in memory.same:
        outs = [env[memory.same[op.slot]]]
    else:
        given = [in_memory(read(ref)) if pointwise and type(ref) is int and ref in memory.transposed else read(ref) for ref in args]
        outs = op.signature.in_programs(how, op.slot in memory.apart)(*given)
    if op.signature.check is not None:
        bad, offender = outs[-1]
        outs = outs[:-1]
        checks = checks + 1
        found = jnp.stack([jnp.asarray(checks, jnp.int64), jnp.asarray(offender, jnp.int64)])
        code = jnp.where((code[0] == 0) & (bad != 0), found, code)
    env.update(zip(range(op.slot, op.end), outs, strict=True))
    if op.slot in memory.shared:
        env[op.slot] = in_memory(env[op.slot])
    return checks, code


def _at(array: Any, index: Any) -> Any:
    return lax.dynamic_index_in_dim(array, index, 0, keepdims=False, allow_negative_indices=False)
