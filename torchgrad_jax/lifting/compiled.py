"""A Lifted as one XLA program: compiled, and called in place of the function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from torchgrad_jax.core.made import data_of, fresh, result, wrap
from torchgrad_jax.core.node import Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.writing import memory_of
from torchgrad_jax.lifting.differentiating import Freed
from torchgrad_jax.lifting.finding import CONSTANT, CONTENT, DRAWN, MEMORY, Lifted, order_of, part_of
from torchgrad_jax.memory.storage import View
from torchgrad_jax.runtime._jax_compat import call_x64, directly
from torchgrad_jax.runtime.compiling.compiled import ahead_of_time, jitted, replay
from torchgrad_jax.runtime.counters import counters
from torchgrad_jax.runtime.device import CPU, put
from torchgrad_jax.runtime.notices import compiling
from torchgrad_jax.runtime.observing import observer
from torchgrad_jax.runtime.observing.observer import COMPILING, RUNNING, timed
from torchgrad_jax.runtime.recorder import Recorder
from torchgrad_jax.runtime.recording.interrupts import from_outside
from torchgrad_jax.runtime.structure import calls_to, inputs_of
from torchgrad_jax.runtime.user_code import line_of
from torchgrad_jax.runtime.value import Aval, Value, constant, is_tracer

# Constants of so few elements become part of the program; larger ones are given to it.
SMALL = 16
# That the tensors are not like those that were traced.
MISS: Any = object()
_ORDER = {CONTENT: 0, MEMORY: 1, DRAWN: 2, CONSTANT: 3}


class Traced(Exception):
    """A tensor holds a JAX tracer."""


def as_function(lifted: Lifted, wanted: Sequence[int]) -> tuple[Callable[..., list[Any]], list[int], list[Any]]:
    """The program as a JAX function of its inputs to the `wanted` slots, and the outcome of its checks; which inputs it takes; and its operations."""
    calls, outputs = calls_to(lifted.step, list(wanted))
    inputs = sorted(inputs_of(calls, outputs), key=lambda i: _ORDER[lifted.inputs[i][0]])
    kinds = [a.dtype.kind for a in lifted.numbers]
    inner = replay(calls, inputs, outputs, kinds)
    small = {i: np.asarray(lifted.inputs[i][1]) for i in inputs if lifted.inputs[i][0] is CONSTANT and lifted.inputs[i][1].size <= SMALL}
    numbers = lifted.numbers

    def lifted_function(*arrays: Any) -> list[Any]:
        rest = iter(arrays)
        return inner(*numbers, *[small[i] if i in small else next(rest) for i in inputs])

    return lifted_function, [i for i in inputs if i not in small], calls


class Compiled:
    """What calls a Lifted. residuals: the slots of what its backward pass needs, which come after the function's own results."""

    __slots__ = (
        "lifted", "wanted", "node", "owned", "outputs", "freed", "places", "function", "ahead", "contents", "others", "checks", "asks", "plain",
    )  # fmt: skip

    def __init__(
        self, lifted: Lifted, residuals: Sequence[int] = (), node: Any = None, owned: Sequence[tuple[int, bool, int]] = (), living: Sequence[int] = ()
    ) -> None:  # fmt: skip
        """node, owned: make the node of a call (`node_maker`); living: which of the results with a graph are its outputs."""
        self.outputs = {root: nr for nr, root in enumerate(living)}
        self.freed = tuple([m.aval for m in lifted.made if m.root >= 0]) if len(living) < len([m for m in lifted.made if m.root >= 0]) else None
        self.lifted, self.wanted, self.node, self.owned = lifted, [*lifted.wanted, *residuals], node, owned
        self.places: list[tuple[Any, ...]] = [tuple(p) for p in lifted.places]
        self.function: Any = None
        self.ahead = False

    def call(self, rec: Recorder, arguments: list[Tensor]) -> Any:
        """Run the program, and put its results where they belong: what the function returns. MISS where the tensors are not like those that were
        traced. What its checks find is raised before anything has changed. Traced where a tensor holds a tracer."""
        tensors: list[Tensor] = []
        values: list[Value] = []
        t: Any
        for kind, at, aval, requires_grad, leaf, order in self.places:
            if kind == "argument":
                t = arguments[at]
            elif kind == "captured":
                t = at
            else:
                extra = tensors[at]._extra
                t = None if extra is None else extra.grad
                if t is None:
                    return MISS
            if t._view is None:
                storage = t._storage
                value = t._value if storage is None else storage.value
                if value.aval is not aval or t._rg is not requires_grad or (t._node is None) is not leaf or order is not None:
                    return MISS
            else:
                value = t._content()
                if value.aval is not aval or t.requires_grad is not requires_grad or (t._present_node() is None) is not leaf or order_of(t) != order:
                    return MISS
            tensors.append(t)
            values.append(value)
        lifted = self.lifted
        for i in lifted.without_grad:
            extra = tensors[i]._extra
            if extra is not None and extra.grad is not None:
                return MISS
        if lifted.parts and not self._lie_alike(tensors):
            return MISS
        if self.function is None:
            with timed(COMPILING, self):
                self._compile()
        arrays = [values[i].array for i in self.contents]
        plain = self.plain
        for i, array in enumerate(arrays):
            if type(array) is not plain:
                arrays[i] = _ready(values[self.contents[i]])
        if self.others or lifted.draws:
            drawn = [make() for make in lifted.draws]
            arrays += [_other(kind, at, tensors, drawn, lifted.device) for kind, at in self.others]
        function: Any = self.function
        if observer.active:
            with timed(RUNNING, self):
                outs = function(*arrays) if self.ahead else call_x64(function, *arrays)
        else:
            outs = function(*arrays) if self.ahead else call_x64(function, *arrays)
        if self.asks:
            self._check(outs)
        return self._settle(rec, tensors, values, outs)

    def _lie_alike(self, tensors: list[Tensor]) -> bool:
        """Whether the tensors share memory as those did that were traced, and are the same parts of what the program reads or writes as a whole."""
        first: dict[int, int] = {}
        if [first.setdefault(memory_of(t), i) for i, t in enumerate(tensors)] != self.lifted.memories:
            return False
        return all([part_of(tensors[i]) == part for i, part in self.lifted.parts])

    def _settle(self, rec: Recorder, tensors: list[Tensor], values: list[Value], outs: Sequence[Any]) -> Any:
        lifted = self.lifted
        node = None if self.node is None else self.node(rec, tensors, values, outs[len(lifted.wanted) :])
        made: list[Tensor] = []
        freed: Node | None = None
        for content, memory, aval, view, leaf, root in lifted.made:
            value = _value(outs[content], aval)
            if root < 0:
                t = fresh(rec, value)
            elif root in self.outputs:
                t = result(value, node, self.outputs[root])
            else:
                freed = freed or Freed(self.freed or (), rec)
                t = result(value, freed, root)
            if view is not None:
                be_part(t, _value(outs[memory]), view)
            if leaf:
                t.requires_grad = True
            made.append(t)
        writes = [(tensors[place], _value(outs[which], aval), versions) for place, which, aval, versions in lifted.writes]
        try:
            for t, value, versions in writes:
                _write(rec, t, value, versions)
            self._set_grads(tensors, made)
        except BaseException as error:
            if not isinstance(error, Exception) or from_outside(error):  # what is begun is done
                for t, value, versions in writes:
                    if not versions or t._storage is None or t._storage.peek() is not value:
                        _write(rec, t, value, versions)
                self._set_grads(tensors, made)
            raise
        if self.owned:
            assert node is not None
            node.own([(i, (made if own else tensors)[which]) for i, own, which in self.owned])
        returned = lifted.returned
        if lifted.layout.kind is None:
            i = returned[0]
            return made[i] if i >= 0 else tensors[-1 - i]
        return lifted.layout.filled([made[i] if i >= 0 else tensors[-1 - i] for i in returned])

    def _set_grads(self, tensors: list[Tensor], made: list[Tensor]) -> None:
        for place, which in self.lifted.grads:
            tensors[place]._own_extra().grad = None if which is None else made[which]

    def _compile(self) -> None:
        lifted = self.lifted
        function, given, calls = as_function(lifted, self.wanted)
        self.checks = [c for c in calls if c.signature.check is not None]
        self.asks = bool(self.checks or lifted.faults)
        self.contents, self.others, avals = [], [], []
        for i in given:
            kind, at = lifted.inputs[i]
            if kind is CONTENT:
                self.contents.append(at)
            else:
                self.others.append((kind, put(np.asarray(at), lifted.device) if kind is CONSTANT else at))
            avals.append(jax.ShapeDtypeStruct(lifted.leaf_avals[i].shape, lifted.leaf_avals[i].dtype))
        self.plain = type(put(np.zeros(()), CPU))
        program = jitted(function, calls, lifted.device)
        counters.compiled += 1
        with compiling(len(calls)):
            if lifted.device is CPU:
                compiled = call_x64(ahead_of_time, program, avals)
                call_x64(compiled, *[put(np.zeros(a.shape, a.dtype), CPU) for a in avals])  # it has its shorter way once it was called
                self.ahead = True
                program = directly(compiled)
        self.function = program

    def _check(self, outs: Sequence[Any]) -> None:
        faults = self.lifted.faults
        if faults and (which := int(outs[self.lifted.answer])):
            raise faults[which - 1].error()
        if not self.checks:
            return
        code, offender = np.asarray(outs[-1])
        if code:
            call = self.checks[int(code) - 1]
            error = call.signature.check(int(offender))
            line = line_of(self.lifted.lines.get(call.slot))
            if line:
                error.add_note(f"raised by the operation recorded at {line}")
            raise error


def _value(array: Any, aval: Aval | None = None) -> Value:
    if aval is None:
        return constant(array)
    value = Value()
    value.aval, value.array, value.slot, value.epoch, value.counter, value.version = aval, array, 0, None, None, 0
    return value


def _ready(value: Value) -> Any:
    array = value.concrete()
    if isinstance(array, np.ndarray):  # where XLA reads it, it stays on the device from then on
        array = value.array = put(array, value.aval.device)
    elif is_tracer(array):
        raise Traced
    return array


def _other(kind: str, at: Any, tensors: list[Tensor], drawn: list[np.ndarray], where: Any) -> Any:
    if kind is CONSTANT:
        return at
    if kind is MEMORY:
        storage: Any = tensors[at]._storage
        return _ready(storage.value)
    array = drawn[at]
    return put(np.ascontiguousarray(array) if array.ndim else array, where)


def _write(rec: Recorder, t: Tensor, value: Value, versions: int) -> None:
    """Let `value` be the content of the memory of `t`, whose version grows by so many."""
    storage: Any = t._storage or t._shared()
    if not versions:  # written by way of `data`
        storage = data_of(t)._storage
        storage.write(value)
        return
    counter = storage.counter
    version = counter.version + versions
    if rec.epoch.lines or storage.siblings is not None or storage.inference:
        storage.write(value)
        counter.version = value.version = version
    else:  # at once: an interrupt may come at each line
        storage.writes, storage.value, counter.version, value.version, value.counter = storage.writes + 1, value, version, version, counter
    if t._view is None:
        t._value = value  # the first content is not held


def be_part(t: Tensor, memory: Value, view: View) -> None:
    """Let a new tensor be the part of `memory` that `view` describes."""
    base = wrap(memory)
    storage = base._shared()
    t._storage = storage
    t._view = View(None, view.links, 0, storage, view.strides, view.offset, "default")
    t._value.counter, t._value.version = storage.counter, storage.counter.version
