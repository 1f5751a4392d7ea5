"""What most of a training step consists of, written out: here alone may speed cost beauty.

Each function does for one or two operands, or for a plain case, what another does for all: `record1` and `record2` for
`recorder.record`, `of_one` and `of_two` for `dispatch.apply`, `write_of_two` and `write_plainly` for `writing.apply_inplace`,
`affine` for `nn.functional.linear`. What the copies save, measured on an Intel Xeon with Python 3.11, not compiled:

    record1, record2     0.4 and 0.45 us, where a record of any operands takes 0.9 and 0.65: no loop, no tuple of them
    of_one, of_two       1.4 and 1.0 us against 1.7 and 1.5 for an operation without a graph, 1.6 against 3.4 with one: no list of
                         Values, no questions that plain Tensors answer in one line
    write_of_two         0.8 us against 2.7 for a write that nobody follows
    affine               6.7 us against 10.7 for its operations one by one: no Tensor for what nobody sees

This is compiled where there is a compiler (`torchgrad_jax/_typed`). The types are in `hot.pxd`; annotations inside of functions are for it, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from torchgrad_jax.core import blank
from torchgrad_jax.core.dispatch import NO_PLAN, apply, plan_of, turn
from torchgrad_jax.core.elements import change_at_hand, computed_at_hand, overlap_in_part
from torchgrad_jax.core.fields import UNREAD, content_of, edge_of, needs_grad, read
from torchgrad_jax.core.made import result, wrap
from torchgrad_jax.core.op_node import OpNode
from torchgrad_jax.core.order import plain
from torchgrad_jax.core.parameter import Parameter
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.tracked_view import PrimalView
from torchgrad_jax.core.writing import apply_inplace, fit, part_written
from torchgrad_jax.declaration.derivative import Plan
from torchgrad_jax.declaration.operator import ARRAY, BoundOperator, Static
from torchgrad_jax.memory.at_hand import COMPARISONS, OF_ONE, OF_TWO
from torchgrad_jax.memory.storage import Storage, put_content, written_at_once
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.elsewhere import Elsewhere
from torchgrad_jax.runtime.keeping import Memo
from torchgrad_jax.runtime.operation import BoundOp, Signature
from torchgrad_jax.runtime.recorder import LEAST_INT, MOST_INT, Recorder, after, large_int, per_thread, record
from torchgrad_jax.runtime.recording import making
from torchgrad_jax.runtime.value import Value

# ---------------------------------------------------------------------- records of one and two operands
#
# Any call may let other code run, which may record: what is recorded has its place once `step` is set, and between the last check that nothing
# was recorded meanwhile and that line there is no call.


def record1(rec: Recorder, bop: BoundOp, a: Value) -> Value:
    """Record a single-output operation of one Value."""
    epoch = rec.epoch
    slot = a.slot if a.epoch is epoch else rec.enter(a)
    before = epoch.step
    step = before.last
    if step is None or step.bop is not bop or step.a is not slot:
        key = (bop, slot)
        step = before.after(key)
        if step is None:
            step = rec.extend(before, bop, key, (a,))
        before.last = step
    value = making.value(Value)
    value.aval = step.aval
    value.array = None
    value.slot = slot = step.slot
    value.epoch = epoch
    value.counter = None
    value.signature = step.signature
    values = epoch.values
    if epoch.step is not before or rec.epoch is not epoch:
        return record1(rec, bop, a)
    values[slot], epoch.step = value, step
    if step.due >= epoch.limit:
        after(rec, epoch, step)
    return value


def record2(rec: Recorder, bop: BoundOp, a: Value, b: Any) -> Value:
    """Record a single-output operation of a Value and a second operand: a Value or a Python number."""
    epoch = rec.epoch
    slot_a = a.slot if a.epoch is epoch else rec.enter(a)
    kind = type(b)
    if kind is Value:
        second: Value = b
        slot_b: Any = second.slot if second.epoch is epoch else rec.enter(second)
    else:
        if kind is int and not LEAST_INT <= b <= MOST_INT:
            return record2(rec, bop, a, large_int(b, a.aval.dtype.kind))
        slot_b = kind
    before = epoch.step
    step = before.last
    if step is None or step.bop is not bop or step.a is not slot_a or step.b is not slot_b:
        key = (bop, slot_a, slot_b)
        step = before.after(key)
        if step is None:
            step = rec.extend(before, bop, key, (a, b))
        before.last = step
    value = making.value(Value)
    value.aval = step.aval
    value.array = None
    value.slot = slot = step.slot
    value.epoch = epoch
    value.counter = None
    value.signature = step.signature
    values = epoch.values
    if epoch.step is not before or rec.epoch is not epoch:
        return record2(rec, bop, a, b)
    if kind is not Value:
        epoch.numbers[step.numbers[0]] = b
    values[slot], epoch.step = value, step
    if step.due >= epoch.limit:
        after(rec, epoch, step)
    return value


# ---------------------------------------------------------------------- operations of one and two operands


class Called:
    """An operator as it is called. exact: its name, if numbers on the host are computed with at once. ordered: whether results lie as operands do;
    copies: whether with their very strides, if these leave no gaps. follows: how the operands are read: one without
    gradients asks no view for its grad_fn, since autograd may have lost it. real, whole: the classes of Python numbers that may be the second
    operand. otherwise: its general form, None where it is an operation and no more."""

    __slots__ = ("bound", "name", "otherwise", "follows", "ordered", "copies", "real", "whole", "exact")

    def __init__(self, bound: BoundOperator, name: str, otherwise: Callable[..., Any] | None, numbers: bool) -> None:
        self.bound, self.name, self.otherwise = bound, name, otherwise
        self.follows = bool(bound.differentiable)
        self.ordered, self.copies = bool(bound.keeps_order), bound.keeps_order == "exactly"
        self.real, self.whole = (float, int) if numbers else (None, None)
        name = bound.operator.name
        self.exact: Any = name if name in OF_ONE or name in OF_TWO or name in COMPARISONS else None


def _in_general(called: Called, operands: tuple[Any, ...]) -> Any:
    general = called.otherwise
    return apply(called.bound, operands) if general is None else general(*operands)


def _lies_otherwise(called: Called, t: Tensor) -> bool:
    """Whether results may lie otherwise than in rows, as this operand does."""
    view = t._view
    if view is None or (view.rows and not (called.copies and 1 in t._value.aval.shape)):
        return False
    return not plain(t)


def of_one(called: Called, x: Tensor) -> Any:
    """An operation of one Tensor."""
    rec: Recorder = per_thread.recorder
    if rec.rare:
        return _in_general(called, (x,))
    bound = called.bound
    if called.exact is not None and _is_loose(x):
        found = computed_at_hand(called.exact, x, None)
        if found is not None:
            return found
    if x._storage is None:
        a: Value = x._value
    elif called.ordered and _lies_otherwise(called, x):
        return apply(bound, (x,))
    else:
        a = read(x) if called.follows else content_of(x)
    try:
        if not (x._rg and rec.grad_enabled):
            return wrap(record1(rec, bound, a))
        if rec.turned and turn(rec):
            return apply(bound, (x,))
        value: Value = record1(rec, bound, a)
    except Elsewhere:
        return apply(bound, (x,))
    sig: Signature = value.signature
    p: Any = sig.plans.get(1) or plan_of(sig, 1)
    if p is NO_PLAN:
        return wrap(value)
    plan: Plan = p
    node: OpNode = blank.node(plan.node_class)
    node.plan = plan
    saves = plan.saves
    node.saved = () if not saves else (a,) if saves == (0,) else (value,) if saves == (-1,) else (a, value)
    node.next = (edge_of(x),)
    node.seq = rec.sequence
    rec.sequence += 1
    node.hooks = None
    return result(value, node, 0)


def of_two(called: Called, x: Tensor, other: Any) -> Any:
    """An operation of a Tensor and anything."""
    kind = type(other)
    rec: Recorder = per_thread.recorder
    if rec.rare:
        return _in_general(called, (x, other))
    bound = called.bound
    if called.exact is not None and _is_loose(x) and (found := _at_once(called, x, other)) is not None:
        return found
    if x._storage is None:
        a: Value = x._value
    elif called.ordered and _lies_otherwise(called, x):
        return apply(bound, (x, other)) if kind is Tensor or kind is called.real or kind is called.whole else _in_general(called, (x, other))
    else:
        a = read(x) if called.follows else content_of(x)
    if kind is Tensor or kind is Parameter:
        y: Tensor = other
        if y._storage is None:
            b: Any = y._value
        elif called.ordered and _lies_otherwise(called, y):
            return apply(bound, (x, other))
        else:
            b = read(y) if called.follows else content_of(y)
        mask = (x._rg + 2 * y._rg) if rec.grad_enabled else 0
    elif kind is called.real or kind is called.whole:
        y = x  # which nothing asks
        b = other
        mask = x._rg if rec.grad_enabled else 0
    else:
        return _in_general(called, (x, other))
    try:
        if not mask:
            return wrap(record2(rec, bound, a, b))
        if rec.turned and turn(rec):
            return apply(bound, (x, other))
        value: Value = record2(rec, bound, a, b)
    except Elsewhere:
        return apply(bound, (x, other))
    sig: Signature = value.signature
    p: Any = sig.plans.get(mask) or plan_of(sig, mask)
    if p is NO_PLAN:
        return wrap(value)
    plan: Plan = p
    node: OpNode = blank.node(plan.node_class)
    node.plan, saves = plan, plan.saves
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
    inputs = plan.inputs
    node.next = (edge_of(x), edge_of(y)) if len(inputs) == 2 else (edge_of(x),) if inputs[0] == 0 else (edge_of(y),)
    node.seq, node.hooks = rec.sequence, None
    rec.sequence += 1
    return result(value, node, 0)


def _at_once(called: Called, x: Tensor, other: Any) -> Any:
    """`of_two` of a loose Tensor and another one, or a number; None where that is to be recorded."""
    kind = type(other)
    fits = kind is called.real or kind is called.whole or ((kind is Tensor or kind is Parameter) and _is_loose(other))
    return computed_at_hand(called.exact, x, other) if fits else None


def _is_loose(t: Tensor) -> bool:
    """Whether it is one element that is part of no program: of memory, and nobody has read it, or a number on the host."""
    value: Value = t._value
    if value.aval.shape:
        return False
    view = t._view
    return view.seen == UNREAD if view is not None else value.epoch is None and t._storage is None and type(value.array) is _ndarray


def _is_counted(t: Tensor) -> bool:
    """Whether it is a number on the host, written to before or not, that is part of no program."""
    value: Value = t._value if t._storage is None else t._storage.value
    return value.epoch is None and type(value.array) is _ndarray


_ndarray = np.ndarray


def operator_of(
    called: Called, numbers: bool, otherwise: Callable[[Any, Any], Any], declined: Callable[[TypeError], bool]
) -> Callable[[Any, Any], Any]:
    """The operator, as in ``x + y``, of a function of two operands. `otherwise` is its general form. declined: whether an error says that a handler
    leaves it to the other operand."""

    def dunder(self: Any, other: Any) -> Any:
        kind = type(other)
        if (type(self) is Tensor or type(self) is Parameter) and (kind is Tensor or ((kind is float or kind is int) and numbers)):
            return _answered(called, self, other, declined)
        return otherwise(self, other)

    return dunder


def _answered(called: Called, x: Tensor, other: Any, declined: Callable[[TypeError], bool]) -> Any:
    try:
        return of_two(called, x, other)
    except TypeError as error:
        if declined(error):
            return NotImplemented
        raise


class Products:
    """The products of two matrices, of a matrix and a vector, and of two vectors."""

    __slots__ = ("mm", "mv", "dot")

    def __init__(self, mm: Called, mv: Called, dot: Called) -> None:
        self.mm, self.mv, self.dot = mm, mv, dot


def product_of(products: Products, x: Tensor, y: Tensor) -> Called | None:
    """Which of them that of two Tensors is; None for others. `_value` may be outdated for memory that is shared, but its shape is not."""
    a, b = x._value.aval.ndim, y._value.aval.ndim
    if a == 2:
        return products.mm if b == 2 else products.mv if b == 1 else None
    return products.dot if a == b == 1 else None


def product_operator(products: Products, otherwise: Callable[[Any, Any], Any], declined: Callable[[TypeError], bool]) -> Callable[[Any, Any], Any]:
    """`operator_of` for ``x @ y``."""

    def dunder(self: Any, other: Any) -> Any:
        if (type(self) is Tensor or type(self) is Parameter) and (type(other) is Tensor or type(other) is Parameter):
            called = product_of(products, self, other)
            if called is not None:
                return _answered(called, self, other, declined)
        return otherwise(self, other)

    return dunder


# ---------------------------------------------------------------------- writes


def write_of_two(bound: Any, otherwise: Callable[[Tensor, Any], Tensor], x: Any, other: Any) -> Any:
    """An in-place operation of a tensor and another one or a number, written out for the common case: no graph, same shape and dtype.
    `otherwise` is its general form."""
    rec: Recorder = per_thread.recorder
    if rec.rare or rec.writes is not None or (type(x) is not Tensor and type(x) is not Parameter):
        return otherwise(x, other)
    t: Tensor = x
    if t._view is not None or (t._rg and rec.grad_enabled):
        if t._view is not None and (change_at_hand(bound.operator.name, t, other) or _write_part(rec, bound, t, other)):
            return x
        return apply_inplace(bound, (x, other))
    storage = t._storage
    if not t._value.aval.shape and _is_counted(t) and change_at_hand(bound.operator.name, t, other):
        return x
    b: Any = other
    if type(other) is Tensor or type(other) is Parameter:
        o: Tensor = other
        # A view of the target, or one whose base has changed, wants a closer look; any view may be part of this tensor's memory.
        if o._view is not None or (o._rg and rec.grad_enabled):
            return apply_inplace(bound, (x, other))
        b = o._value if o._storage is None else other._read()
    a: Value = t._value if storage is None else storage.value
    try:
        value: Value = record2(rec, bound, a, b)
    except Elsewhere:
        return apply_inplace(bound, (x, other))
    if value.aval is not a.aval:
        value = fit(rec, value, a.aval)
    if storage is None:
        storage = x._shared()
    if type(storage) is Storage:
        put_content(storage, value)
    else:
        storage.write(value)
    t._value = value  # the first content is not held
    return x


def _write_part(rec: Recorder, bound: Any, t: Tensor, other: Any) -> bool:
    """`write_of_two` of a part of memory that one operation writes to, if nobody follows it. False where nothing was done."""
    v, memory = t._view, t._storage
    if v is None or memory is None or type(memory) is not Storage or type(v) is PrimalView or 0 in v.strides:
        return False
    told = written_at_once(v.links, memory.value)
    if told is None:
        return False
    write, numbers = told
    storage: Storage = memory
    b: Any = other
    if type(other) is Tensor or type(other) is Parameter:
        o: Tensor = other
        if (o._storage is storage and overlap_in_part(t, o)) or (rec.grad_enabled and needs_grad(o)):
            return False
        b = o._value if o._storage is None else read(o)
    if storage.siblings is not None or (rec.grad_enabled and needs_grad(t)):
        return False
    try:
        a: Value = content_of(t)
        value: Value = record2(rec, bound, a, b)
        if value.aval is not a.aval:
            value = fit(rec, value, a.aval)
        content: Value = record(rec, write, (storage.value, value, *numbers))
    except Elsewhere:
        return False
    put_content(storage, content)
    part_written(t, value, content)
    return True


class Writing:
    """An operation in place of a tensor and one operand. otherwise: its general form; numbers: whether the operand may be a number."""

    __slots__ = ("bound", "otherwise", "numbers")

    def __init__(self, bound: Any, otherwise: Callable[..., Tensor], numbers: bool) -> None:
        self.bound, self.otherwise, self.numbers = bound, otherwise, numbers


def writing_method(writing: Writing) -> Callable[..., Tensor]:
    """The method, as in ``x.add_(y)``, of an operation in place."""

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and len(args) == 1:
            kind = type(args[0])
            if kind is Tensor or ((kind is float or kind is int) and writing.numbers):
                return write_of_two(writing.bound, writing.otherwise, self, args[0])
        return writing.otherwise(self, *args, **kwargs)

    return call


def writing_operator(writing: Writing, otherwise: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operator, as in ``x += y``, of an operation in place. `otherwise` is its general form."""

    def dunder(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind is Tensor or ((kind is float or kind is int) and writing.numbers):
            return write_of_two(writing.bound, writing.otherwise, self, other)
        return otherwise(self, other)

    return dunder


def write_plainly(bound: Any, operands: tuple[Any, ...]) -> Any:
    """`apply_inplace` for the common case of several operands: plain tensors, no graph, no view, a result like the target."""
    rec: Recorder = per_thread.recorder
    if rec.rare or rec.writes is not None:
        return apply_inplace(bound, operands)
    values: list[Any] = []
    for o in operands:
        if type(o) is Tensor or type(o) is Parameter:
            t: Tensor = o
            if t._view is not None or (t._rg and rec.grad_enabled) or (values and o is operands[0]):
                return apply_inplace(bound, operands)
            values.append(t._value if t._storage is None else read(t))
        elif isinstance(o, Tensor):
            return apply_inplace(bound, operands)
        else:
            values.append(o)
    try:
        value: Value = record(rec, bound, tuple(values))
    except Elsewhere:
        return apply_inplace(bound, operands)
    a: Value = values[0]
    target: Tensor = operands[0]
    storage = target._storage
    if storage is None:
        storage = target._shared()
    if value.aval is not a.aval:
        value = fit(rec, value, a.aval)
    if type(storage) is Storage:
        put_content(storage, value)
    else:
        storage.write(value)
    target._value = value
    return target


# ---------------------------------------------------------------------- the affine map

_BMM = registry["bmm"].bind((ARRAY, ARRAY))
_ADDMM, _MM, _T = registry["linear_addmm"].bind((ARRAY, ARRAY, ARRAY)), registry["mm"].bind((ARRAY, ARRAY)), registry["t"].bind((ARRAY,))
_views, _unsafe_views = Memo(), Memo()


def affine(rec: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """input @ weight.T + bias for matrices, and for batches of rows: the same operations and nodes as one by one, without the tensors in between.
    None for anything else."""
    a = input._value if input._storage is None else input._read()
    w = weight._value if weight._storage is None else weight._read()
    shape = a.aval.shape
    if w.aval.ndim != 2 or not shape:
        return None
    flat = len(shape) == 2
    if not flat and ((len(shape) == 1 if bias is None else bias._aval.ndim != 1) or (input._view is not None and not input.is_contiguous())):
        return None
    tracked = rec.grad_enabled
    through_input, through_weight = tracked and input._rg, tracked and weight._rg
    through_bias = tracked and bias is not None and bias._rg
    saving = through_input or through_weight or through_bias
    if saving and rec.turned and turn(rec):
        return None
    try:
        left, source = a, input._edge() if through_input else None
        right: Any = None
        target: Any = None
        if bias is None:  # the nodes are counted in this order
            right, target = _same_memory(rec, weight, _T, w, weight._edge() if through_weight else None, saving)
        if not flat:
            left, source = _same_memory(rec, input, _viewed(math.prod(shape[:-1]), shape[-1]), a, source, saving)
        if bias is not None:
            right, target = _same_memory(rec, weight, _T, w, weight._edge() if through_weight else None, saving)
        if bias is None:
            values: tuple[Any, ...] = (left, right)
            edges = (source, target)
            value = record(rec, _MM, values)
        else:
            values = (bias._value if bias._storage is None else bias._read(), left, right)
            edges = (bias._edge() if through_bias else None, source, target)
            value = record(rec, _ADDMM, values)
        node = node_of(rec, value.signature, edges, values)
        if not flat:
            size = (*shape[:-1], w.aval.shape[0])
            value = record1(rec, _viewed(*size) if bias is not None else _unsafely_viewed(*size), value)
            node = None if node is None else node_of(rec, value.signature, ((node, 0),), ())
    except Elsewhere:
        return None
    return wrap(value) if node is None else result(value, node, 0)


def batches(rec: Recorder, x: Tensor, y: Tensor) -> Tensor | None:
    """x @ y of batches of matrices, (*, m, k) and (*, k, n) with the same leading dimensions, where nobody follows: without the views that PyTorch's
    graph has around it. None for anything else."""
    a = x._value if x._storage is None else x._read()
    b = y._value if y._storage is None else y._read()
    left, right = a.aval.shape, b.aval.shape
    if len(left) < 4 or left[:-2] != right[:-2] or left[-1] != right[-2] or rec.inference or (rec.grad_enabled and (x._rg or y._rg)):
        return None
    size = math.prod(left[:-2])
    try:
        values = record1(rec, _viewed(size, *left[-2:]), a), record1(rec, _viewed(size, *right[-2:]), b)
        value = record1(rec, _viewed(*left[:-1], right[-1]), record(rec, _BMM, values))
    except Elsewhere:
        return None
    return wrap(value)


def _viewed(*size: int) -> Any:
    found = _views.get(size)
    if found is None:
        found = _views.keep(size, registry["view"].bind((ARRAY, Static(size))))
    return found


def _unsafely_viewed(*size: int) -> Any:
    found = _unsafe_views.get(size)
    if found is None:
        found = _unsafe_views.keep(size, registry["_unsafe_view"].bind((ARRAY, Static(size))))
    return found


def _same_memory(rec: Recorder, t: Tensor, bound: Any, value: Any, edge: Any, saving: bool) -> tuple[Any, Any]:
    """A view of `t`, and the edge to its node: as a Value of t's storage, so that a write to `t` before backward is noticed."""
    made = record1(rec, bound, value)
    if saving:
        counter = (t._storage or t._shared()).counter
        made.counter, made.version = counter, counter.version
    return made, None if edge is None else (node_of(rec, made.signature, (edge,), ()), 0)


def node_of(rec: Recorder, sig: Any, edges: tuple[Any, ...], values: tuple[Any, ...], outs: tuple[Any, ...] = ()) -> Any:
    """The node of an operation, for the operands that have an edge; None where none has. outs: its results, if it may save them."""
    mask = 0
    for i, edge in enumerate(edges):
        if edge is not None:
            mask |= 1 << i
    if not mask:
        return None
    plan = sig.plans.get(mask) or plan_of(sig, mask)
    node: OpNode = blank.node(plan.node_class)
    node.plan = plan
    node.saved = tuple([values[i] if i >= 0 else outs[-1 - i] for i in plan.saves]) if plan.saves else ()
    node.next = tuple([edges[i] for i in plan.inputs])
    node.seq = rec.sequence
    rec.sequence += 1
    node.hooks = None
    return node
