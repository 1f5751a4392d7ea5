"""The gradients of every element of a tensor: a backward pass from each of them, all recorded as one operation.

A graph without the user's Python is one function of the gradient that it is given and of what its nodes saved. It is mapped over the rows of an
identity matrix, which is part of the operation: XLA can use that it is known. If its gradients become part of a graph, it is walked once, on a
batch of gradients. A graph with hooks or Functions is walked once for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.autograd import tape
from torchgrad_jax.autograd.backward import grad
from torchgrad_jax.autograd.batched import levels, standing_for, without_hooks
from torchgrad_jax.autograd.engine import rehearse, run_backward
from torchgrad_jax.core.level import meet
from torchgrad_jax.core.made import fresh, wrap
from torchgrad_jax.core.node import AccumulateGrad, Edge, Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.functions.creation import eye, zeros, zeros_like
from torchgrad_jax.functions.shaping import cat, stack
from torchgrad_jax.memory.filled import full_value
from torchgrad_jax.runtime.device import device
from torchgrad_jax.runtime.operation import ArgSpec, Signature
from torchgrad_jax.runtime.recorder import TURNED, call_values, per_thread
from torchgrad_jax.runtime.value import Aval, Value

MAX_KEPT = 256
# What the passes that run side by side may need if every step of them is kept. Where they need more, as many run at a time as fit.
MOST_BYTES = 1 << 28
_kept: dict[Any, BasisTape] = {}


def gradients_of_elements(output: Tensor, inputs: Sequence[Tensor], create_graph: bool) -> list[Tensor | None]:
    """For each of `inputs` the gradients of all elements of `output`, of shape ``output.shape + input.shape``; None where it does not depend on it.

    output: requires a gradient. Its graph is kept. RuntimeError where it is complex, or has no elements.
    """
    aval = output._aval
    if aval.dtype.kind == "c":
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {dtypes.of(aval.dtype)}")
    edge, captures = output._edge(), [t._edge() for t in inputs]
    found = _by_levels(output, inputs, edge, captures) if create_graph else _at_once(aval, edge, captures)
    return _one_by_one(aval, edge, inputs, captures, create_graph) if found is None else found


def gradients_together(outputs: Sequence[Tensor], inputs: Sequence[Tensor], create_graph: bool) -> list[list[Tensor | None]]:
    """`gradients_of_elements` for each of `outputs`, by passes in which hooks and Functions run once for all elements. Any dtype.

    IndexError where none of them has elements.
    """
    captures = [t._edge() for t in inputs]
    if not create_graph:
        found = [_at_once(o._aval, o._edge(), captures) for o in outputs]
        if None not in found:
            return [row for row in found if row is not None]
    sizes = [o._aval.size for o in outputs]
    units = [u.view((sum(sizes), *o._aval.shape)) for u, o in zip(construct_standard_basis_for(outputs, sizes), outputs, strict=True)]
    columns = grad(outputs, inputs, units, retain_graph=True, create_graph=create_graph, allow_unused=True, is_grads_batched=True)
    parts = [[None for _ in outputs] if g is None else g.split(sizes) for g in columns]
    return [
        [None if (g := part[i]) is None else g.view(o._aval.shape + t._aval.shape) for part, t in zip(parts, inputs, strict=True)]
        for i, o in enumerate(outputs)
    ]


def construct_standard_basis_for(tensors: Sequence[Tensor], tensor_numels: Sequence[int]) -> tuple[Tensor, ...]:
    """The rows of an identity matrix as large as all of `tensors` together, cut into columns: one matrix of shape ``(all elements, elements)``
    for each tensor, of its dtype and on its device. AssertionError where there are none, or as many sizes are not given."""
    if len(tensors) != len(tensor_numels):
        raise AssertionError(f"Expected tensors and tensor_numels to have the same length, but got {len(tensors)} and {len(tensor_numels)}")
    if not tensors:
        raise AssertionError("Expected at least one tensor")
    rows, before, made = sum(tensor_numels), 0, []
    for t, size in zip(tensors, tensor_numels, strict=True):
        unit = eye(size, dtype=t.dtype, device=t.device)
        above, below = [zeros((n, size), dtype=t.dtype, device=t.device) for n in (before, rows - before - size)]
        made.append(cat((above, unit, below)))
        before += size
    return tuple(made)


def _one_by_one(aval: Aval, edge: Edge, inputs: Sequence[Tensor], captures: Sequence[Edge], create_graph: bool) -> list[Tensor | None]:
    columns: list[list[Tensor | None]] = [[] for _ in inputs]
    for g in _units(aval):
        found = run_backward([edge], [g], retain_graph=True, create_graph=create_graph, captures=captures, accumulate=False)
        for column, part in zip(columns, found, strict=True):
            column.append(part)
    made: list[Tensor | None] = []
    for column, t in zip(columns, inputs, strict=True):
        if column and all(g is None for g in column):
            made.append(None)
            continue
        rows = [zeros_like(t) if g is None else g for g in column]
        made.append((rows[0] if len(rows) == 1 else stack(rows)).view(aval.shape + t._aval.shape))
    return made


def _units(aval: Aval) -> list[Tensor]:
    """The gradients that each element begins with."""
    if aval.size == 1:
        return [wrap(full_value(aval.shape, 1, aval.dtype, aval.device))]
    rows = eye(aval.size, dtype=dtypes.of(aval.dtype), device=aval.device).view((aval.size, *aval.shape))
    return [rows[i] for i in range(aval.size)]


# ---------------------------------------------------------------------- as one operation


def of_elements(row: Callable[[Any], Sequence[Any]], output: Aval, nbytes: int) -> list[Any]:
    """What `row` makes of the gradients that each element of an array like `output` begins with, traced: results of the shape of `output` and then
    its own. nbytes: what one element needs if every step of it is kept."""
    at_a_time = MOST_BYTES // max(nbytes, output.nbytes, 1)
    if at_a_time >= output.size:
        found = jax.vmap(row)(jnp.eye(output.size, dtype=output.dtype).reshape((output.size, *output.shape)))
    else:
        elements = jnp.arange(output.size).reshape(output.shape)
        found = lax.map(lambda i: row((elements == i).astype(output.dtype)), jnp.arange(output.size), batch_size=max(at_a_time, 1))
    return [g.reshape(output.shape + g.shape[1:]) for g in found]


class BasisTape:
    """A Tape mapped over the rows of an identity matrix, which take the place of its operand `place`: a BoundOp.

    Results are the gradients of every element of a tensor like `output`.
    """

    __slots__ = ("name", "device", "signatures", "differentiable", "tape", "place", "output")

    def __init__(self, whole: tape.Tape, place: int, output: Aval) -> None:
        self.name, self.differentiable = "backward_of_elements", False
        self.device: device | None = output.device
        self.signatures: dict[tuple[ArgSpec, ...], Signature] = {}
        self.tape, self.place, self.output = whole, place, output

    def specialize(self, specs: Sequence[ArgSpec]) -> Callable[..., Any]:
        """See the runtime's BoundOp."""
        place, output = self.place, self.output
        single = self.tape.specialize((*specs[:place], output, *specs[place:]))

        def backward(*arrays: Any) -> list[Any]:
            return of_elements(lambda g: single(*arrays[:place], g, *arrays[place:]), output, self.tape.nbytes)

        return backward

    def check(self, specs: Sequence[ArgSpec]) -> None:
        """Backward operations check nothing of their own."""


def _at_once(output: Aval, edge: Edge, captures: Sequence[Edge]) -> list[Tensor | None] | None:
    """The gradients of all elements by one operation; None where they must be computed one by one."""
    rec, given = per_thread.recorder, stand_in(output)
    if (rec.level is not None and not rec.level.notes) or not output.size:
        return None
    print_, reached = recognized((edge,), (given,), captures)
    if print_ is None:
        return None
    if not reached:
        return [None for _ in captures]
    key = output, print_.key
    found = _kept.get(key)
    if found is None:
        if len(_kept) >= MAX_KEPT:
            _kept.clear()
        whole = rehearse(print_, (edge,), (given,), reached)
        if whole.checked:
            return None
        found = _kept[key] = BasisTape(whole, next(i for i, o in enumerate(print_.operands) if o is given), output)
    if not found.tape.targets:
        return [None for _ in captures]
    operands = [o for o in print_.operands if o is not given]
    if not operands and rec.device is not output.device:
        rec.switch_device(output.device)
    for o in operands:
        if type(o) is Value:
            meet(wrap(o))
    outs = call_values(found, tuple(operands))
    order = list(print_.index)
    arrived = {(order[i], nr): g for (i, nr), g in zip(found.tape.targets, (outs,) if type(outs) is Value else outs, strict=True)}
    if rec.flags.task is None:
        rec.turned |= TURNED
    return [None if (g := arrived.get(edge)) is None else fresh(rec, g) for edge in captures]


def recognized(roots: Sequence[Edge], given: Sequence[Value], captures: Sequence[Edge]) -> tuple[tape.Fingerprint | None, Sequence[Edge]]:
    """The fingerprint of the graph from `roots` to those captures that it reaches, and these. None where Python of the user's runs in it."""
    print_ = tape.fingerprint(roots, given, captures, False) if without_hooks(captures) else None
    if print_ is not None:
        return print_, captures
    nodes = reachable([node for node, _ in roots])
    reached = [target for target in captures if target[0] in nodes]
    if len(reached) == len(captures) or not without_hooks(reached):
        return None, reached
    return tape.fingerprint(roots, given, reached, False), reached


def _by_levels(output: Tensor, inputs: Sequence[Tensor], edge: Edge, captures: Sequence[Edge]) -> list[Tensor | None] | None:
    """The gradients of all elements, which can be differentiated, by one pass on a batch; None where they must be computed one by one."""
    aval = output._aval
    if aval.size <= 1 or per_thread.recorder.flags.packing or recognized((edge,), (stand_in(aval),), captures)[0] is None:
        return None
    units = eye(aval.size, dtype=output.dtype, device=output.device).view((aval.size, *aval.shape))
    found = levels.pull((edge,), (units,), aval.size, retain_graph=True, create_graph=True, captures=captures, accumulate=False)
    return [None if g is None else g.view(aval.shape + t._aval.shape) for g, t in zip(found, inputs, strict=True)]


@lru_cache(maxsize=MAX_KEPT)
def stand_in(aval: Aval) -> Value:
    """What stands for the gradient that a pass begins with, in the fingerprints of graphs."""
    return standing_for(aval.shape, aval)


def reachable(starts: Sequence[Node]) -> set[Node]:
    """The nodes that can be reached from these, and they."""
    seen, stack = set(starts), list(starts)
    while stack:
        node = stack.pop()
        if type(node) is not AccumulateGrad:
            for target, _ in node.next:
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
    return seen
