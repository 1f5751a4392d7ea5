"""A Python function over Tensors, traced on tensors that stand for any of their shapes and dtypes, as a pure function of arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.custom_derivatives import SymbolicZero

from torchgrad_jax.autograd.engine import run_backward
from torchgrad_jax.core.dispatch import plan_of
from torchgrad_jax.core.made import result, wrap
from torchgrad_jax.core.node import Calculus, Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.lifting.derivatives import Derivatives, carried_out
from torchgrad_jax.lifting.structures import Layout, Refused, layout_of
from torchgrad_jax.lifting.tracing import TraceRecorder, TracingError, abandon
from torchgrad_jax.runtime.device import for_user
from torchgrad_jax.runtime.recorder import AUTOCAST, other_modes, per_thread
from torchgrad_jax.runtime.structure import calls_to
from torchgrad_jax.runtime.value import Aval, Value, watches

ESCAPED = "this tensor was made while a function was traced for JAX, and has no value: return it from the function instead of keeping it"


class Argument(Node):
    """Where the graph of a traced function ends at one of its arguments."""

    __slots__ = ("aval",)

    def __init__(self, aval: Aval) -> None:
        self.aval, self.next, self.seq, self.hooks = aval, (), -1, None

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return (self.aval,)

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        return ()


class Pure:
    """A traced function of arrays. layout: of its result; captured: the tensors from outside that it reads; departed: whether its gradients are
    others than those of its operations, and come from `pulled`."""

    __slots__ = (
        "layout",
        "captured",
        "departed",
        "avals",
        "_calls",
        "_derivatives",
        "_numbers",
        "_inputs",
        "_outputs",
        "_given",
        "_pull",
        "function",
    )

    def __init__(self, function: Callable[[list[Tensor]], Any], avals: Sequence[Aval], frozen: Collection[int] = ()) -> None:
        """frozen: the arguments that have no gradient."""
        self.avals = avals
        outer = per_thread.recorder
        if other_modes(outer) != outer.inference:
            raise TracingError("to_jax: a mode is active that sees each operation (a __torch_function__ mode, hooks on saved tensors, forward mode)")
        outer.flush("jit")
        rec = TraceRecorder(outer, True)
        rec.grad_enabled, rec.inference, rec.rare = True, False, 1 + (outer.rare & AUTOCAST)
        rec.unasked = True
        given = [_symbol(aval) for aval in avals]
        rec.symbols.update(given)
        nodes = [Argument(v.aval) if dtypes.is_float(v.aval.dtype) else None for v in given]
        nodes = [None if i in frozen else node for i, node in enumerate(nodes)]
        tensors = [wrap(v) if node is None else result(v, node, 0) for v, node in zip(given, nodes, strict=True)]
        try:
            try:
                per_thread.recorder = rec
                watches.append(rec)
                self._trace(rec, function, given, nodes, tensors)
            finally:
                abandon(rec, outer, ESCAPED)
        except BaseException:  # an interrupt may have come while it was abandoned
            abandon(rec, outer, ESCAPED)
            raise
        self.function = jax.jit(self._called)

    def _trace(self, rec: TraceRecorder, function: Any, given: list[Value], nodes: list[Any], tensors: list[Tensor]) -> None:
        found: list[Tensor] = []
        try:
            self.layout: Layout = layout_of(function(tensors), found)
        except Refused as refused:
            raise TracingError(f"to_jax: {refused}") from None
        _refuse_changes(rec)
        values = [t._content() for t in found]
        self._outputs = [_slot(rec, v) for v in values]
        self.departed = rec.departed
        self._pull: Any = None
        if self.departed:
            self._pull = self._pulled(rec, given, nodes, found)
        leaves = list(rec.epoch.leaves.values())
        place = {v: i for i, v in enumerate(given)}
        self.captured: list[Tensor] = []
        self._inputs: list[tuple[str, Any]] = []
        cotangents = {} if self._pull is None else {v: i for i, v in enumerate(self._pull[0])}
        for v in leaves:
            if v in place:
                self._inputs.append(("argument", place[v]))
            elif v in cotangents:
                self._inputs.append(("cotangent", cotangents[v]))
            elif v in rec.owners:
                self._inputs.append(("captured", len(self.captured)))
                met = rec.owners[v]
                self.captured.append(met.tensor if v is not met.value or met.view is None else _Memory(met.tensor))  # type: ignore[arg-type]
            elif v in rec.constants:
                self._inputs.append(("constant", np.asarray(v.array)))
            else:
                raise TracingError("to_jax: it reads a tensor from outside in a way that cannot be followed")
        slots = self._outputs if self._pull is None else self._outputs + [s for s in self._pull[1] if s is not None]
        self._calls, outputs = calls_to(rec.epoch.step, slots)
        renamed = dict(zip(slots, outputs, strict=True))
        self._outputs = [renamed[s] for s in self._outputs]
        if self._pull is not None:
            self._pull = len(self._pull[0]), [None if s is None else renamed[s] for s in self._pull[1]], self._pull[2]
        self._derivatives = Derivatives(rec.plans, rec.refused)
        self._numbers = {a.dtype.kind: a for a in rec.epoch.arrays_of_numbers()}

    def _pulled(self, rec: TraceRecorder, given: list[Value], nodes: list[Any], outs: list[Tensor]) -> Any:
        """The gradients that arrive at the arguments, as slots, for gradients of the outputs that stand for any; and which outputs have one."""
        carried = [i for i, t in enumerate(outs) if t.requires_grad and t.grad_fn is not None]
        seeds = [_symbol(outs[i]._aval) for i in carried]
        rec.symbols.update(seeds)
        roots = [outs[i]._edge() for i in carried]
        edges = [(n, 0) for n in nodes if n is not None]
        found = run_backward(roots, [wrap(v) for v in seeds], retain_graph=True, create_graph=True, captures=edges, accumulate=False) if roots else []
        _refuse_changes(rec)
        arrived = iter(found)
        grads = [None if n is None else next(arrived, None) for n in nodes]
        return seeds, [None if g is None else _slot(rec, g._content()) for g in grads], carried

    # ------------------------------------------------------------------ called

    def __call__(self, arrays: Sequence[Any]) -> Any:
        """The result for these arrays."""
        return self.layout.filled(list(self.function(list(arrays), [for_user(t._concrete()) for t in self.captured])))

    def _called(self, arrays: list[Any], captured: list[Any]) -> list[Any]:
        if not self.departed:
            return self._run(arrays, captured, ())[0]

        @jax.custom_vjp
        def whole(arrays: list[Any], captured: list[Any]) -> list[Any]:
            return self._run(arrays, captured, ())[0]

        def forward(arrays: list[Any], captured: list[Any]) -> Any:
            self._refuse([a.perturbed for a in arrays])
            kept = [a.value for a in arrays], [c.value for c in captured]
            return self._run(*kept, ())[0], kept

        def backward(kept: Any, cotangents: list[Any]) -> Any:
            arrays, captured = kept
            _, _, carried = self._pull
            # PyTorch's gradients of complex numbers are the conjugates of JAX's.
            seeds = [jnp.conj(_instantiated(cotangents[i])) for i in carried]
            found = [None if g is None else jnp.conj(g) for g in self._run(arrays, captured, seeds)[1]]
            return [_cotangent(a, g) for a, g in zip(arrays, found, strict=True)], [_cotangent(a, None) for a in captured]

        whole.defvjp(forward, backward, symbolic_zeros=True)
        return whole(arrays, captured)

    def _refuse(self, perturbed: Sequence[bool]) -> None:
        """RuntimeError where one of the arguments that are differentiated comes to where an operation has no derivative."""
        for sig, mask, sources in self._derivatives.refused_by(self._calls):
            if any(perturbed[at] for i, (kind, at) in enumerate(self._inputs) if kind == "argument" and -1 - i in sources):
                plan_of(sig, mask)

    def _run(self, arrays: Sequence[Any], captured: Sequence[Any], seeds: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The results, and where gradients of them are given those of the arguments."""
        env: dict[int, Any] = {}
        for i, (kind, at) in enumerate(self._inputs):
            if kind == "argument":
                env[-1 - i] = arrays[at]
            elif kind == "captured":
                env[-1 - i] = captured[at]
            elif kind == "constant":
                env[-1 - i] = jnp.asarray(at)
            elif seeds:
                env[-1 - i] = seeds[at]
        calls = self._calls
        if not seeds and self._pull is not None:
            calls = _independent(calls, {-1 - i for i, (kind, _) in enumerate(self._inputs) if kind == "cotangent"})
        carried_out(calls, self._derivatives, self._numbers, env)
        grads = [None if s is None else env[s] for s in self._pull[1]] if seeds and self._pull is not None else []
        return [env[s] for s in self._outputs], grads


class _Memory:
    """All of the memory that a captured tensor is a part of."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def _concrete(self) -> Any:
        storage: Any = self.tensor._storage
        return storage.value.concrete()


def _symbol(aval: Aval) -> Value:
    v = Value()
    v.aval, v.array, v.slot, v.epoch, v.counter, v.version = aval, None, 0, None, None, 0
    return v


def _slot(rec: TraceRecorder, value: Value) -> int:
    return value.slot if value.epoch is rec.epoch else rec.enter(value)


def _independent(calls: Sequence[Any], slots: set[int]) -> list[Any]:
    """The calls that depend on none of these slots."""
    found, dependent = [], set(slots)
    for call in calls:
        if any(type(a) is int and a in dependent for a in call.args):
            dependent.update(range(call.slot, call.end))
        else:
            found.append(call)
    return found


def _instantiated(cotangent: Any) -> Any:
    if not isinstance(cotangent, SymbolicZero):
        return cotangent
    dtype: Any = cotangent.dtype
    return jnp.zeros(cotangent.shape, dtype)


def _cotangent(array: Any, found: Any) -> Any:
    dtype = jax.dtypes.result_type(array)
    if not jnp.issubdtype(dtype, jnp.inexact):
        return np.zeros(jnp.shape(array), jax.dtypes.float0)
    return jnp.zeros(jnp.shape(array), dtype) if found is None else found.astype(dtype)


def _refuse_changes(rec: TraceRecorder) -> None:
    rec.check_random()
    if rec.draws:
        raise TracingError("to_jax: it draws random numbers, and a pure function has none: pass them as arguments, or call eval() on the module")
    for met in rec.mets.values():
        now = None if met.tensor._extra is None else met.tensor._extra.grad
        if met.storage.peek() is not met.value or met.tensor._storage is not met.storage or now is not met.grad:
            raise TracingError(
                f"to_jax: it changes a tensor from outside (of shape {list(met.tensor._aval.shape)}) or its .grad, which a pure function cannot: "
                "return the new value instead, take gradients by torch.autograd.grad, or hand the module that owns the tensor to to_jax"
            )
