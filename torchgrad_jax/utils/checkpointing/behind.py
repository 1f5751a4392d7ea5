"""Recomputation that waits for its gradient.

A forward pass, its recomputation and the backward pass are often one program. Left to itself XLA merges the recomputation with the forward pass,
of which it is a copy, or carries it out early: either way what is saved nowhere is kept all the same. So what a recomputation reads is made to
depend on the gradient that has arrived where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.node import Node
from torchgrad_jax.core.order import keep_order, plain
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.saved import with_history
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.through import Through, is_view
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime import modes
from torchgrad_jax.runtime.recorder import Recorder, call_values, per_thread
from torchgrad_jax.runtime.value import Value, is_tracer

_BEHIND = registry["behind"].bind((ARRAY, ARRAY, ARRAY))


def behind(gradients: Iterable[Any], given: Iterable[Any]) -> AbstractContextManager[Any]:
    """Within the block, nothing is computed before one of the gradients is there. given: the arguments of what is recomputed."""
    rec = per_thread.recorder
    if rec.level is not None or modes.execution == "eager":  # tangents go their own way; what runs at once is in order
        return nullcontext()
    for grad in gradients:
        value = grad._read() if isinstance(grad, Tensor) else grad
        if type(value) is Value and value.aval.size:
            return _Behind(value, given)
    return nullcontext()


class _Behind(Through):
    """Puts operands behind `arriving`: those that carry what is computed. Weights (Parameters, and leaves that require a gradient and are no
    arguments) and their views stay as they are beside others. What is computed of an operand that waits does wait, so that it is done where
    operations read from outside alone."""

    __slots__ = ("arriving", "given", "twins", "sources", "epoch", "waiting", "traced")

    def __init__(self, arriving: Value, given: Iterable[Any]) -> None:
        self.arriving = arriving
        self.given = {id(t) for t in given}
        # By the Value's id: the Value, so that the id stays its own, and the same behind `arriving`.
        self.twins: dict[int, tuple[Value, Value]] = {}
        # Where gradients of operands go: leaves do not hold the nodes that take theirs.
        self.sources: set[Node] = set()
        self.epoch: Any = None
        # What waits: slots of the epoch's; and what is traced, by id.
        self.waiting: set[int] = set()
        self.traced: dict[int, Value] = {}

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        rec = per_thread.recorder
        values = [_content(o, bound) if isinstance(o, Tensor) else None for o in operands]
        if is_view(bound):
            waits = any(v is not None and self._waits(rec, v) for v in values)
        else:
            operands, waits = self._behind(rec, operands, values), True
        made = self.outside(bound, operands)
        if waits:
            for t in made if type(made) is tuple else (made,):
                self._note(rec, t._value)
        return made

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Interpreter."""
        rec = per_thread.recorder
        waits = any(isinstance(o, Tensor) and self._waits(rec, _content(o, bound)) for o in operands)
        made = self.write_outside(bound, operands)
        if waits:
            self._note(rec, made._content())
        return made

    def _waits(self, rec: Recorder, value: Value) -> bool:
        if value.array is not None:
            return id(value) in self.traced
        return value.epoch is rec.epoch is self.epoch and value.slot in self.waiting

    def _note(self, rec: Recorder, value: Value) -> None:
        if is_tracer(value.array):
            self.traced[id(value)] = value
        elif value.array is None and value.epoch is rec.epoch:
            if rec.epoch is not self.epoch:
                self.epoch = rec.epoch
                self.waiting.clear()
            self.waiting.add(value.slot)

    def _behind(self, rec: Recorder, operands: Sequence[Any], values: list[Value | None]) -> Sequence[Any]:
        free = [i for i, v in enumerate(values) if v is not None and v.aval.size and not self._waits(rec, v)]
        data = [i for i in free if not self._is_weight(operands[i])]
        if not data and len(free) == sum(v is not None for v in values):
            data = free  # of weights alone
        if not data:
            return operands
        found = list(operands)
        for i in data:
            t, value = operands[i], values[i]
            assert value is not None
            # What a batch of gradients is traced for does not become one.
            mapped = is_tracer(self.arriving.array) and not is_tracer(value.array)
            if value.aval.device is self.arriving.aval.device and not mapped:
                found[i] = self._alike(t, self._twin(rec, value))
        return found

    def _alike(self, t: Tensor, value: Value) -> Tensor:
        """`value` as a tensor with the history of `t`, that lies in memory as it does."""
        made = wrap(value)
        if t._rg:
            edge = t._edge()
            self.sources.add(edge[0])
            with_history(made, *edge)
        if not plain(t):
            keep_order(made, (t,))
        return made

    def _is_weight(self, t: Tensor) -> bool:
        source = t if t._view is None else t._view.base
        return source is not None and t._rg and source._node is None and (type(source) is Parameter or id(source) not in self.given)

    def _twin(self, rec: Recorder, value: Value) -> Value:
        found = self.twins.get(id(value))
        if found is None:
            made = call_values(_BEHIND, (value, self.arriving, False))
            found = self.twins[id(value)] = value, made
            self._note(rec, made)
        return found[1]


def _content(t: Tensor, bound: Any) -> Value:
    return t._value if t._storage is None else t._read() if bound.differentiable else t._content()
