"""The one path that every operation takes: Values in, record, a Node if a graph is being recorded, a Tensor out.

For one and two operands of plain Tensors it is written out in `hot.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.anomaly import check_operation, note_node
from torchgrad_jax.core.fields import OpNodeFields, content_of, edge_of, read
from torchgrad_jax.core.level import settle
from torchgrad_jax.core.made import fresh, result, wrap
from torchgrad_jax.core.node import Nowhere
from torchgrad_jax.core.op_node import OpNode, node_class, pack_operands, pack_results
from torchgrad_jax.core.order import keep_order, order_by_rule, plain
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.derivative import Plan, plan
from torchgrad_jax.declaration.operator import NUMBERS, BoundOperator, plain_number
from torchgrad_jax.runtime.elsewhere import Elsewhere
from torchgrad_jax.runtime.operation import Signature
from torchgrad_jax.runtime.recorder import CHECK_FORWARD, LOOK, TURNED, Recorder, per_thread, record
from torchgrad_jax.runtime.value import Value

_new = OpNodeFields.__new__
NO_PLAN: Any = object()
MISSING: Any = object()
SAVED_INFERENCE = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work "
    "around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
)


def plan_of(sig: Signature, mask: int) -> Any:
    """The Plan of `sig` for the operands whose bits are set in `mask`, NO_PLAN where the result has no gradient."""
    found = sig.plans.get(mask)
    if found is None:
        found = _plan_of_its_kind(sig, mask)
        sig.keep_plan(mask, found)
    return found


def _plan_of_its_kind(sig: Signature, mask: int) -> Any:
    kind, bound = sig.kind, sig.bop
    key: Any = mask
    if kind is not None:
        plans = kind.plans
    else:
        plans = bound.plans if type(bound) is BoundOperator else None
        if plans is not None:
            key = mask, len(sig.avals), sig.specs[0].dtype, sig.avals[0].dtype
    like = None if plans is None else plans.get(key)
    if like is not None:
        return like.of(sig)
    found = plan(sig, tuple(i for i in range(len(sig.specs)) if mask >> i & 1)) or NO_PLAN
    if found is not NO_PLAN:
        found.node_class = node_class(found.name)
        if plans is not None and found.serves_all_sizes:
            plans[key] = found
    return found


def turn(rec: Recorder) -> bool:
    """Do what `rec.turned` says before a graph grows: if a backward pass is over, the loop has come round, so its program ends here. True where the
    operation is to take its long way, which looks for inference tensors in what it saves."""
    if rec.turned & TURNED:
        rec.flush("turn")
        rec.turned &= ~TURNED
    return rec.turned > 0


def apply(bound: Any, operands: Sequence[Any]) -> Any:
    """Any operation on Tensors and Python numbers. A Tensor, or a tuple of them if the operation has several results."""
    rec = per_thread.recorder
    if rec.rare:
        if rec.flags.casting is not None:
            operands = rec.flags.casting.operands(bound, operands)
        if rec.level is not None and (found := rec.level.apply(bound, operands)) is not NotImplemented:
            return found
    follows = bound.differentiable  # an operation without gradients asks no view for its grad_fn, since autograd may have lost it
    given = []
    mask, bit = 0, 1
    ordered = turned = False
    for o in operands:
        if isinstance(o, Tensor):
            t: Tensor = o
            if t._storage is None:
                given.append(t._value)
            else:
                given.append(read(t) if follows else content_of(t))
                view = t._view
                if view is not None and not view.plain and not plain(t):
                    ordered, turned = True, turned or not view.rows or (bound.keeps_order == "exactly" and 1 in t._value.aval.shape)
            if t._rg:
                mask |= bit
        else:
            given.append(o if type(o) in NUMBERS else plain_number(o))
        bit <<= 1
    if mask:
        if not rec.grad_enabled:
            mask = 0
        elif rec.turned:
            turn(rec)
    values = tuple(given)
    try:
        outs = record(rec, bound, values)
        first: Any = outs[0] if isinstance(outs, tuple) else outs
        sig = first.signature
    except Elsewhere as place:
        if settled(operands):
            return apply(bound, operands)
        outs, sig = place.call(rec, bound, values)
    node = make_node(rec, sig, mask, operands, values, outs) if mask else None
    if rec.rare:
        noticed(rec, bound, values, outs, node)
    if rec.inference:
        made = fresh(rec, outs) if type(outs) is Value else tuple([fresh(rec, v) for v in outs])
    elif type(outs) is Value:
        made = result(outs, node, 0)
    elif node is None:
        made = tuple([wrap(v) for v in outs])
    else:
        carries = node.plan.outputs
        made = tuple([result(v, node, i) if carries[i] else wrap(v) for i, v in enumerate(outs)])
    if turned and bound.keeps_order:
        keep_order(made, operands, bound)
    elif (order := bound.order) is not None and (ordered or order.always):
        order_by_rule(bound, order, made, operands)
    if rec.rare and node is not None:
        pack_operands(rec, node, operands)
        pack_results(rec, node, made)
    return made


def settled(operands: Sequence[Any]) -> bool:
    """Whether there are operands that have outlived the level of a transform, and from now on are what they stood for outside."""
    found = False
    for o in operands:
        if isinstance(o, Tensor):
            found = settle(o) or found
    return found


def noticed(rec: Recorder, bound: Any, values: Sequence[Any], outs: Any, node: OpNode | None) -> None:
    """Tell the modes that see each operation of one that was just recorded."""
    if node is not None:
        note_node(rec, node)
    if rec.level is not None:
        rec.level.applied(outs, node)
    if rec.rare & CHECK_FORWARD:
        check_operation(rec, bound, values, outs)


def make_node(rec: Recorder, sig: Signature, mask: int, operands: Sequence[Any], values: Sequence[Any], outs: Any) -> OpNode | None:
    """The node of an operation whose operands need gradients as `mask` says; None where the result has none."""
    p: Plan = sig.plans.get(mask) or (rec.level.plan(plan_of, sig, mask) if rec.rare and rec.level is not None else plan_of(sig, mask))
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
    node.next = tuple([edge_of(operands[i]) for i in p.inputs])
    node.seq = rec.sequence
    rec.sequence += 1
    node.hooks = None
    return node


# PyTorch makes an ordinary tensor first and then copies into it.
_COPIES = ("clone", "_to_copy")


def for_inference(bound: Any, operands: Sequence[Any]) -> bool:
    """Whether an operation has none but inference tensors, which autograd does not notice. A number that stands for a tensor is an ordinary one, and
    what PyTorch copies into."""
    declared = isinstance(bound, BoundOperator)
    if declared and bound.operator.name in _COPIES:
        return False
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
