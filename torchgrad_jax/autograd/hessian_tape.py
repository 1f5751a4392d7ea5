"""A whole Hessian as one operation on what the nodes of a function's graph have saved.

Where a backward pass saved a tensor, the graph says what that was computed from. So the graph that a differentiable backward pass makes, and the
passes over that graph, are known once the first graph is: they are rehearsed for a graph that has come back, and then need no Python any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchgrad_jax.autograd import tape
from torchgrad_jax.autograd.basis import of_elements, reachable, stand_in, without_hooks
from torchgrad_jax.autograd.batched import standing_for
from torchgrad_jax.autograd.engine import rehearsed, run_backward
from torchgrad_jax.core.node import Edge
from torchgrad_jax.core.tensor import Tensor, fresh, wrap
from torchgrad_jax.memory.filled import full_value
from torchgrad_jax.runtime.call import call_values
from torchgrad_jax.runtime.composite import steps_to
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.operation import NUMBER_DTYPES, ArgSpec, Signature
from torchgrad_jax.runtime.recorder import TURNED, per_thread
from torchgrad_jax.runtime.value import Aval, Value

MAX_KEPT = 256
_SEEN_ONCE: Any = object()
_kept: dict[Any, HessianTape | None] = {}


def second_derivatives(output: Tensor, inputs: Sequence[Tensor]) -> list[list[Tensor | None]] | None:
    """For each of `inputs` the derivatives of its gradient of `output`, which has one element, with respect to all of them: ``[i][j]`` of shape
    ``inputs[i].shape + inputs[j].shape``, None where there is none. None at the first sighting of a graph, and where Python of the user's runs in it.
    """
    rec, aval = per_thread.recorder, output._aval
    if rec.level is not None or not output.requires_grad or aval.dtype.kind != "f" or not all(x._aval.size for x in inputs):
        return None
    edge, captures = output._edge(), [x._edge() for x in inputs]
    given = stand_in(aval)
    print_ = tape.fingerprint((edge,), (given,), captures, False) if without_hooks(captures) else None
    if print_ is None:
        return None
    values = [o for o in print_.operands if type(o) is Value and o is not given]
    # Numbers become part of the operation: a graph in which they change is another one each time, and is never seen twice.
    key = aval, print_.key, *[repr(o) for o in print_.operands if type(o) is not Value]
    found = _kept.get(key, key)
    if found is key:
        if len(_kept) >= MAX_KEPT:
            _kept.clear()
        _kept[key] = _SEEN_ONCE
        return None
    if found is _SEEN_ONCE:
        found = _kept[key] = _rehearse(edge, aval, inputs, captures, values)
    if found is None:
        return None
    outs: Any = iter(call_values(found, tuple(values))) if found.blocks else ()
    if rec.flags.task is None:
        rec.turned |= TURNED
    made: list[list[Tensor | None]] = [[None for _ in inputs] for _ in inputs]
    for block in found.blocks:
        for j in block.places:
            made[block.place][j] = fresh(rec, next(outs))
    return made


class Block:
    """The derivatives of one input's gradient. place: which input that is; unit: the slot of the gradient that a pass over its graph begins with;
    steps: the operations of that pass; places, results: of the inputs that it reaches, which they are and the slots of their gradients."""

    def __init__(self, place: int, aval: Aval, unit: int, steps: list[Any], reached: list[tuple[int, int]]) -> None:
        self.place, self.aval, self.unit, self.steps = place, aval, unit, steps
        self.places, self.results = [j for j, _ in reached], [slot for _, slot in reached]


class HessianTape:
    """The operations of a differentiable backward pass, then of the passes over its graph for each element of each gradient: a BoundOp.

    operands: the slots of what the first graph has saved. numbers: Python's, by their places among the steps.
    """

    __slots__ = ("name", "device", "signatures", "differentiable", "operands", "numbers", "first", "blocks")

    def __init__(self, where: device, operands: dict[int, int], numbers: dict[Any, np.ndarray], first: list[Any], blocks: list[Block]) -> None:
        self.name, self.differentiable = "hessian", False
        self.device: device | None = where
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}
        self.operands, self.numbers, self.first, self.blocks = operands, numbers, first, blocks

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""

        def hessian(*arrays: Any) -> list[Any]:
            shared = {slot: arrays[i] for slot, i in self.operands.items()}
            self._run(self.first, shared)
            return [g for block in self.blocks for g in of_elements(self._row(block, shared), block.aval, _nbytes(block.steps))]

        return hessian

    def _row(self, block: Block, shared: dict[int, Any]) -> Callable[[Any], list[Any]]:
        def row(unit: Any) -> list[Any]:
            found = {**shared, block.unit: unit}
            self._run(block.steps, found)
            return [found[slot] for slot in block.results]

        return row

    def _run(self, steps: list[Any], found: dict[int, Any]) -> None:
        for step in steps:
            numbers = iter(step.numbers)
            outs = step.signature.function(*[found[a] if type(a) is int else self.numbers[next(numbers)] for a in step.args])
            for i, out in enumerate(outs):
                found[step.slot + i] = out

    def check(self, specs: Sequence[ArgSpec]) -> None:
        """Backward operations check nothing of their own."""


def _nbytes(steps: Sequence[Any]) -> int:
    return sum([step.signature.nbytes for step in steps])


def _rehearse(edge: Edge, aval: Aval, inputs: Sequence[Tensor], captures: Sequence[Edge], values: Sequence[Value]) -> HessianTape | None:
    """The passes as one operation; None where Python of the user's runs in them, or an operation checks values."""
    rec = per_thread.recorder
    scratch = tape.PassRecorder(rec)
    scratch.sequence = rec.sequence
    per_thread.recorder = scratch
    try:
        one = wrap(full_value(aval.shape, 1, aval.dtype, aval.device))
        gradients = run_backward((edge,), (one,), retain_graph=True, create_graph=True, captures=captures, accumulate=False)
        ends, passes = [scratch.epoch.step], []
        for g in gradients:
            found = _rows_of(scratch, g, captures) if g is not None and g.requires_grad else []
            if found is None:
                return None
            passes.append(found)
            ends.append(scratch.epoch.step)
        return _made(scratch, aval.device, inputs, values, ends, passes)
    finally:
        per_thread.recorder = rec
        scratch.close()


def _rows_of(scratch: tape.PassRecorder, gradient: Tensor, captures: Sequence[Edge]) -> list[tuple[int, int, int]] | None:
    """The pass over a gradient's graph: for each input that it reaches, which it is, and the slots of the pass's beginning and of its result."""
    edge, given = gradient._edge(), standing_for(gradient._aval.shape, gradient._aval)
    nodes = reachable(edge[0])
    reached = [target for target in captures if target[0] in nodes]
    if tape.fingerprint((edge,), (given,), reached, False) is None:
        return None
    if not reached:
        return []
    found = dict(rehearsed(scratch, (edge,), (wrap(given),), reached, False, None).reached)
    unit, made = scratch.enter(given), []
    for j, target in enumerate(captures):
        if target in found:
            g = found[target]
            made.append((unit, j, g.slot if g.epoch is scratch.epoch else scratch.enter(g)))
    return made


def _made(
    scratch: tape.PassRecorder, where: device, inputs: Sequence[Tensor], values: Sequence[Value], ends: list[Any],
    passes: list[list[tuple[int, int, int]]],
) -> HessianTape | None:  # fmt: skip
    steps, counts = steps_to(scratch.epoch.step), [len(steps_to(end)) for end in ends]
    place = {id(v): i for i, v in enumerate(values)}
    units = {found[0][0] for found in passes if found}
    leaves = {-1 - i: place.get(id(v)) for i, v in scratch.epoch.leaves.items() if -1 - i not in units}
    if None in leaves.values() or any(s.signature.check is not None for s in steps):
        return None
    blocks = []
    for i, found in enumerate(passes):
        if found:
            reached = [(j, slot) for _, j, slot in found]
            blocks.append(Block(i, inputs[i]._aval, found[0][0], steps[counts[i] : counts[i + 1]], reached))
    numbers = {at: np.asarray(number, NUMBER_DTYPES[type(number)]) for at, number in scratch.epoch.numbers.items()}
    return HessianTape(where, leaves, numbers, steps[: counts[0]], blocks)
