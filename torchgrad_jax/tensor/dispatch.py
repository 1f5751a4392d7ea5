"""The one path that every operation takes: Values in, record, a Node if a graph is being recorded, a Tensor out.

`unary` and `binary` are the same path written out for one and two operands of plain Tensors: they are nearly all of a training
step, and the general path costs three times as much (about 5 against 1.6 us on a 2.5 GHz core).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.ops.declare import NUMBERS, BoundOperator, plain_number
from torchgrad_jax.ops.derivative import Plan, plan
from torchgrad_jax.runtime._jax_compat import has_x64
from torchgrad_jax.runtime.device import for_user, put
from torchgrad_jax.runtime.operation import Signature, signature
from torchgrad_jax.runtime.recorder import LOOK, TURNED, DeviceChange, Recorder, TracedInput, per_thread, record, record1, record2
from torchgrad_jax.runtime.value import Value, constant
from torchgrad_jax.tensor.node import OpNode, node_class
from torchgrad_jax.tensor.order import keep_order, order_by_rule, plain
from torchgrad_jax.tensor.parameter import Parameter
from torchgrad_jax.tensor.saved import pack_operands, pack_results
from torchgrad_jax.tensor.tensor import Nowhere, Tensor, fresh, result, wrap

_new = object.__new__
NO_PLAN: Any = object()
MISSING: Any = object()
LEVEL = "dual level"  # the recorder's flag for the dual level whose tangents operations pass on
SAVED_INFERENCE = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work "
    "around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
)


def plan_of(sig: Signature, mask: int) -> Any:
    """The Plan of `sig` for the operands whose bits are set in `mask`, NO_PLAN where the result has no gradient."""
    found = sig.plans.get(mask)
    if found is None:
        found = plan(sig, tuple(i for i in range(len(sig.specs)) if mask >> i & 1)) or NO_PLAN
        if found is not NO_PLAN:
            found.node_class = node_class(found.name)
        sig.plans[mask] = found
    return found


def turn(rec: Recorder) -> bool:
    """Do what `rec.turned` says before a graph grows: if a backward pass is over, the loop has come round, so its program ends here. True where the
    operation is to take its long way, which looks for inference tensors in what it saves."""
    if rec.turned & TURNED:
        rec.flush("turn")
        rec.turned &= ~TURNED
    return rec.turned > 0


# ---------------------------------------------------------------------- one and two operands


def _reader(bound: Any) -> Callable[[Tensor], Value]:
    """How the operands are read. An operation without gradients asks no view for its grad_fn: autograd may have lost it."""
    return Tensor._read if bound.differentiable else Tensor._content


def unary(bound: BoundOperator, name: str, otherwise: Callable[..., Any]) -> Callable[..., Tensor]:
    """The function of an operator of one tensor and no other arguments. `otherwise` is its general form."""
    read, ordered = _reader(bound), bound.keeps_order

    def call(self: Tensor = MISSING, *args: Any, **kwargs: Any) -> Tensor:
        if (type(self) is not Tensor and type(self) is not Parameter) or args or kwargs:
            return otherwise(*(() if self is MISSING else (self,)), *args, **kwargs)
        rec = per_thread.recorder
        if rec.rare:
            return otherwise(self)
        if self._storage is None:
            a = self._value
        elif ordered and (view := self._view) is not None and not view.plain and not plain(self):
            return apply(bound, (self,))
        else:
            a = read(self)
        try:
            if not (self._rg and rec.grad_enabled):
                value = record1(rec, bound, a)
                t = _new(Tensor)
                t._value = value
                t._storage = t._view = t._node = t._extra = None
                t._rg = False
                t._nr = 0
                return t
            if rec.turned and turn(rec):
                return apply(bound, (self,))
            value = record1(rec, bound, a)
        except (TracedInput, DeviceChange):
            return apply(bound, (self,))
        sig = value.signature
        p = sig.plans.get(1) or plan_of(sig, 1)
        t = _new(Tensor)
        t._value = value
        t._storage = t._view = t._node = t._extra = None
        t._nr = 0
        if p is NO_PLAN:
            t._rg = False
            return t
        node = _new(p.node_class)
        node.plan = p
        saves = p.saves
        node.saved = () if not saves else (a,) if saves == (0,) else (value,) if saves == (-1,) else (a, value)
        source = self._node
        node.next = ((source, self._nr),) if source is not None else (self._edge(),)
        node.seq = rec.sequence
        rec.sequence += 1
        node.hooks = None
        t._rg = True
        t._node = node
        return t

    call.__name__ = call.__qualname__ = name
    return call


def binary(bound: BoundOperator, name: str, otherwise: Callable[..., Any], numbers: bool = True) -> Callable[..., Tensor]:
    """The function of an operator of a tensor and a second one, or (`numbers`) a Python number. `otherwise` is its general form."""
    read, ordered = _reader(bound), bound.keeps_order
    real, whole = (float, int) if numbers else (None, None)

    def call(self: Tensor = MISSING, other: Any = MISSING, *args: Any, **kwargs: Any) -> Tensor:
        kind = type(other)
        rec = per_thread.recorder
        if args or kwargs or rec.rare or (type(self) is not Tensor and type(self) is not Parameter):
            if self is MISSING and other is not MISSING:
                return otherwise(other=other, **kwargs)
            return otherwise(*[x for x in (self, other) if x is not MISSING], *args, **kwargs)
        if self._storage is None:
            a = self._value
        elif ordered and (view := self._view) is not None and not view.plain and not plain(self):
            return apply(bound, (self, other)) if kind is Tensor or kind is real or kind is whole else otherwise(self, other)
        else:
            a = read(self)
        if kind is Tensor:
            if other._storage is None:
                b = other._value
            elif ordered and (view := other._view) is not None and not view.plain and not plain(other):
                return apply(bound, (self, other))
            else:
                b = read(other)
            mask = (self._rg + 2 * other._rg) if rec.grad_enabled else 0
        elif kind is real or kind is whole:
            b = other
            mask = self._rg if rec.grad_enabled else 0
        elif kind is Parameter:
            b = other._value if other._storage is None else other._read()
            mask = (self._rg + 2 * other._rg) if rec.grad_enabled else 0
        elif other is MISSING:
            raise TypeError(f'{name}() missing 1 required positional arguments: "other"')
        else:
            return otherwise(self, other)
        try:
            if not mask:
                value = record2(rec, bound, a, b)
                t = _new(Tensor)
                t._value = value
                t._storage = t._view = t._node = t._extra = None
                t._rg = False
                t._nr = 0
                return t
            if rec.turned and turn(rec):
                return apply(bound, (self, other))
            value = record2(rec, bound, a, b)
        except (TracedInput, DeviceChange):
            return apply(bound, (self, other))
        sig = value.signature
        p = sig.plans.get(mask) or plan_of(sig, mask)
        t = _new(Tensor)
        t._value = value
        t._storage = t._view = t._node = t._extra = None
        t._nr = 0
        if p is NO_PLAN:
            t._rg = False
            return t
        node = _new(p.node_class)
        node.plan = p
        saves = p.saves
        if not saves:
            node.saved = ()
        elif saves == (1,):
            node.saved = (b,)
        elif saves == (0,):
            node.saved = (a,)
        elif saves == (0, 1):
            node.saved = (a, b)
        else:
            node.saved = tuple([a if i == 0 else b if i == 1 else value for i in saves])
        inputs = p.inputs
        if inputs == (0,):
            source = self._node
            node.next = ((source, self._nr),) if source is not None else (self._edge(),)
        elif inputs == (1,):
            node.next = (other._edge(),)
        else:
            node.next = (self._edge(), other._edge())
        node.seq = rec.sequence
        rec.sequence += 1
        node.hooks = None
        t._rg = True
        t._node = node
        return t

    call.__name__ = call.__qualname__ = name
    return call


# ---------------------------------------------------------------------- any operands


def run(rec: Recorder, bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
    """Record an operation on Values and numbers, or call it at once if an input is a tracer. Its Values, and its Signature."""
    try:
        outs = record(rec, bound, values)
        return outs, (outs if type(outs) is Value else outs[0]).signature
    except TracedInput:
        return _call_traced(bound, values)
    except DeviceChange:
        rec.switch_device(next(v.aval.device for v in values if type(v) is Value))
        return run(rec, bound, _on_one_device(values))


def _call_traced(bound: Any, values: tuple[Any, ...]) -> tuple[Any, Signature]:
    """An operation inside a transformation of the user's. Where `jax_enable_x64` is off there, arrays have 32 bits where their Values say 64."""
    sig = signature(bound, tuple(v.aval if type(v) is Value else type(v) for v in values))
    arrays = [v.concrete() if type(v) is Value else v for v in values]
    if not has_x64():
        arrays = [for_user(a) if type(v) is Value else a for v, a in zip(values, arrays, strict=True)]
    outs = sig.traced(*arrays) if has_x64() else sig.in_32_bits(arrays)
    made = tuple(constant(o, aval) for o, aval in zip(outs, sig.avals, strict=False))
    return (made[0] if sig.single else made), sig


def _on_one_device(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """PyTorch lets a 0-dim host tensor meet tensors of another device; any other mix is an error, raised by the signature."""
    tensors = [v for v in values if type(v) is Value]
    main = next((v.aval.device for v in tensors if v.aval.device.type != "cpu"), tensors[0].aval.device)
    found: list[Any] = []
    for v in values:
        if type(v) is Value and v.aval.device is not main and v.aval.ndim == 0 and v.aval.device.type == "cpu":
            v = constant(put(v.concrete(), main))
        found.append(v)
    signature_devices = {v.aval.device for v in found if type(v) is Value}
    if len(signature_devices) > 1:
        a, b = sorted(map(str, signature_devices), reverse=True)[:2]
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {a} and {b}!")
    if main is not per_thread.recorder.device:
        per_thread.recorder.switch_device(main)
    return tuple(found)


def apply(bound: Any, operands: Sequence[Any]) -> Any:
    """Any operation on Tensors and Python numbers. A Tensor, or a tuple of them if the operation has several results."""
    rec = per_thread.recorder
    if rec.rare and rec.flags.get(LEVEL) is not None and not rec.inference:
        from torchgrad_jax.tensor.duals import apply_dual, tangents_of

        tangents = tangents_of(operands)
        if tangents:
            return apply_dual(rec, bound, operands, tangents)
    read = Tensor._read if bound.differentiable else Tensor._content  # see `_reader`
    found = []
    mask, bit = 0, 1
    ordered = False
    for o in operands:
        if isinstance(o, Tensor):
            if o._storage is None:
                found.append(o._value)
            else:
                found.append(read(o))
                ordered = ordered or not plain(o)
            if o._rg:
                mask |= bit
        else:
            found.append(o if type(o) in NUMBERS else plain_number(o))
        bit <<= 1
    if mask:
        if not rec.grad_enabled:
            mask = 0
        elif rec.turned:
            turn(rec)
    values = tuple(found)
    try:
        outs = record(rec, bound, values)
        first: Any = outs[0] if isinstance(outs, tuple) else outs
        sig = first.signature
    except (TracedInput, DeviceChange):
        outs, sig = run(rec, bound, values)
    node = make_node(rec, sig, mask, operands, values, outs) if mask else None
    if rec.inference:
        made = fresh(rec, outs) if type(outs) is Value else tuple([fresh(rec, v) for v in outs])
    elif type(outs) is Value:
        made = result(outs, node, 0)
    elif node is None:
        made = tuple([wrap(v) for v in outs])
    else:
        carries = node.plan.outputs
        made = tuple([result(v, node, i) if carries[i] else wrap(v) for i, v in enumerate(outs)])
    if ordered and bound.keeps_order:
        keep_order(made, operands, bound)
    elif (order := bound.order) is not None and (ordered or order.always):
        order_by_rule(bound, order, made, operands)
    if rec.rare and node is not None:
        pack_operands(rec, node, operands)
        pack_results(rec, node, made)
    return made


def make_node(rec: Recorder, sig: Signature, mask: int, operands: Sequence[Any], values: Sequence[Any], outs: Any) -> OpNode | None:
    """The node of an operation whose operands need gradients as `mask` says; None where the result has none."""
    p: Plan = sig.plans.get(mask) or plan_of(sig, mask)
    if p is NO_PLAN:
        return None
    node: OpNode = _new(p.node_class)
    node.plan = p
    if rec.turned & LOOK:
        rec.turned &= ~LOOK
        if for_inference(sig.bop, operands):
            return None
        _refuse_inference_operands(p, operands)
    if p.saves:
        results = (outs,) if type(outs) is Value else outs
        node.saved = tuple([values[i] if i >= 0 else results[-1 - i] for i in p.saves])
    else:
        node.saved = ()
    node.next = tuple([operands[i]._edge() for i in p.inputs])
    node.seq = rec.sequence
    rec.sequence += 1
    node.hooks = None
    return node


def for_inference(bound: Any, operands: Sequence[Any]) -> bool:
    """Whether an operation has none but inference tensors, which autograd does not notice. A number that stands for a tensor is an ordinary one."""
    declared = isinstance(bound, BoundOperator)
    roles = bound.number_roles() if declared and bound.operator.number_node is None else (not declared,) * len(operands)
    return all(_is_inference(o) if isinstance(o, Tensor) else not tensor for o, tensor in zip(operands, roles, strict=True))


def _is_inference(o: Any) -> bool:
    return isinstance(o, Tensor) and o._storage is not None and o._storage.inference


def refuse_inference(saved: Sequence[Any]) -> None:
    """RuntimeError where an inference tensor would be saved for backward."""
    if any(map(_is_inference, saved)):
        raise RuntimeError(SAVED_INFERENCE)


def _refuse_inference_operands(p: Plan, operands: Sequence[Any]) -> None:
    """As `refuse_inference`, of what PyTorch saves of an operation: it leaves out what only a gradient is made of that goes nowhere."""
    wanted = [type(operands[i]._edge()[0]) is not Nowhere for i in p.inputs]
    refuse_inference([operands[i] for place, i in enumerate(p.saves) if i >= 0 and _is_inference(operands[i]) and p.reads(place, wanted)])


def call_values(bound: Any, values: tuple[Any, ...]) -> Any:
    """`Calculus.call` on Values."""
    rec = per_thread.recorder
    try:
        return record(rec, bound, values)
    except (TracedInput, DeviceChange):
        return run(rec, bound, values)[0]
