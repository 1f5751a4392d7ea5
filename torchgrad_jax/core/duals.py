"""Dual tensors: tensors that have a tangent, their derivative in one direction. While a dual level is open, operations pass tangents on.

A tangent is a Tensor like any other, so what is computed of it is recorded in a graph (reverse over forward), and gradients computed of dual
tensors have tangents (forward over reverse). Dispatch looks here only while a level is open in its thread: `Recorder.rare` counts it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.dispatch import NO_PLAN, apply, plan_of
from torchgrad_jax.core.history import REPEATED, by_strides, repeats
from torchgrad_jax.core.level import Interpreter, mapped_as
from torchgrad_jax.core.made import created
from torchgrad_jax.core.node import Node, Saved, WithSaved
from torchgrad_jax.core.op_node import OpNode, keep_as_saved
from torchgrad_jax.core.order import lay_out
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.through import Chained
from torchgrad_jax.core.tracked_view import PrimalView
from torchgrad_jax.core.writing import apply_inplace, make_view
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.forward import jvp_of
from torchgrad_jax.declaration.operator import ARRAY
from torchgrad_jax.memory.filled import full_value
from torchgrad_jax.memory.storage import Link, View, links_between
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.pointwise import cast_to
from torchgrad_jax.runtime.operation import signature
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Lifted, is_tracer

_CLONE, _COPY = registry["clone"].bind((ARRAY,)), registry["copy"].bind((ARRAY, ARRAY))


class Level(Chained):
    """An open dual level: all that holds a tangent of it. In inference mode, and where the user says so, operations pass none on.

    outer: the interpreter within which it was opened, if any. It carries out what has no tangents, and computes tangents.
    """

    __slots__ = ("holders",)

    def __init__(self, outer: Interpreter | None = None) -> None:
        super().__init__(outer)
        self.holders: list[weakref.ref[Any]] = []

    def apply(self, bound: Any, operands: Sequence[Any]) -> Any:
        """See Interpreter."""
        rec = per_thread.recorder
        tangents = tangents_of(operands) if passes(rec) else {}
        return _apply_dual(rec, bound, operands, tangents) if tangents else self._asked.apply(bound, operands)

    def apply_inplace(self, bound: Any, operands: tuple[Any, ...]) -> Any:
        """See Interpreter."""
        rec = per_thread.recorder
        tangents = tangents_of(operands) if passes(rec) else {}
        return _apply_inplace_dual(rec, bound, operands, tangents) if tangents else self._asked.apply_inplace(bound, operands)

    def view_made(self, t: Tensor, out: Tensor, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
        """See Interpreter: the tangent of a view is a view of the tangent."""
        self._asked.view_made(t, out, links, strides, offset)
        tangent = tangent_of(t) if passes(per_thread.recorder) else None
        if tangent is not None:
            hold(out, _view_alike(tangent, t, links, strides, offset))

    def function(self, cls: Any, args: tuple[Any, ...]) -> Any:
        """See Interpreter."""
        tensors = [a for a in args if isinstance(a, Tensor)]
        tangents = tangents_of(tensors) if passes(per_thread.recorder) else {}
        return self._asked.function_of_duals(cls, args, tangents) if tangents else self._asked.function(cls, args)

    @property
    def without_tangents(self) -> Interpreter | None:
        """See Interpreter."""
        return self.outer

    def close(self) -> None:
        """Take all tangents away."""
        for reference in self.holders:
            holder = reference()
            if isinstance(holder, Tensor):
                holder._own_extra().tangent = None
            elif holder is not None:
                holder.tangent = None


class without_duals:
    """Operations in this block pass no tangents on."""

    __slots__ = ("_recorder", "_before")

    def __init__(self, rec: Recorder) -> None:
        self._recorder = rec
        self._before = rec.level, rec.flags.forward_grad, rec.flags.suspended

    def __enter__(self) -> None:
        rec, before = self._recorder, self._before
        flags = rec.flags
        try:
            rec.level = None if before[0] is None else before[0].without_tangents
            flags.forward_grad, flags.suspended = False, before[2] or before[:2]
        except BaseException:  # an interrupt came just then
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        rec, before = self._recorder, self._before
        try:
            rec.level, rec.flags.forward_grad, rec.flags.suspended = before
        finally:  # an interrupt may have come just then
            rec.level, rec.flags.forward_grad, rec.flags.suspended = before


# ---------------------------------------------------------------------- a tensor's tangent


def tangent_of(t: Tensor) -> Tensor | None:
    """The tangent of a tensor, that of a view whose base has got one since it was made among them; None where there is none."""
    found = None if t._extra is None else t._extra.tangent
    view = t._view
    if found is not None or view is None:
        return found
    base = _source(view)
    tangent = None if base is None or base._extra is None else base._extra.tangent
    if base is None or tangent is None:
        return None
    primal = base._view if type(view) is PrimalView else None
    links = links_between(base, view, t._storage) if primal is None else view.links[len(primal.links) :]
    found = _view_alike(tangent, base, links, view.strides, view.offset)
    hold(t, found)
    return found


def _source(view: View) -> Tensor | None:
    """The tensor of whose tangent a view's is a part."""
    return view.source if type(view) is PrimalView else view.base


def seen_tangent(t: Tensor) -> Tensor | None:
    """The tangent of a tensor where tangents are passed on: elsewhere dual tensors look like others."""
    return tangent_of(t) if passes(per_thread.recorder) else None


def passes(rec: Recorder) -> bool:
    """Whether operations pass tangents on: a level is open, and neither inference mode nor the user has turned it off."""
    return rec.level is not None and rec.flags.forward_grad and not rec.inference


def followed(t: Tensor) -> bool:
    """Whether a derivative of what is computed of `t` may be asked for: here, in either mode, or where what it stands for is computed."""
    if (t.requires_grad and per_thread.recorder.grad_enabled) or seen_tangent(t) is not None:
        return True
    array = t._content().array
    return is_tracer(array) and (not isinstance(array, Lifted) or array.followed())


def tangents_of(operands: Sequence[Any]) -> dict[int, Tensor]:
    """The tangents of those operands that have one, by their place."""
    found = {}
    for i, o in enumerate(operands):
        if isinstance(o, Tensor) and (tangent := tangent_of(o)) is not None:
            found[i] = tangent
    return found


def hold(t: Tensor, tangent: Tensor) -> None:
    """Give a tensor a tangent until the level is closed."""
    per_thread.recorder.flags.dual_level.holders.append(weakref.ref(t))
    t._own_extra().tangent = tangent


def set_tangent(t: Tensor, tangent: Tensor) -> None:
    """Make a tensor dual. RuntimeError where the tangent does not fit, or is dual itself."""
    if t._aval.shape != tangent._aval.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. Tensor is of size "
            f"{list(t._aval.shape)} while the given forward gradient is of size {list(tangent._aval.shape)}."
        )
    if tangent_of(tangent) is not None:
        raise RuntimeError("Setting a forward grad that itself has a forward gradient at the same level0 is not supported.")
    hold(t, laid_out_alike(t, tangent))


def _same_layout(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape lie alike, each in a memory as large as the other's."""
    if a._storage is None and b._storage is None:
        return True
    shape = a._aval.shape
    strides = zip(a._strides(), b._strides(), shape, strict=True)
    return (a._aval.size == 0 or all(m == n or size == 1 for m, n, size in strides)) and _memory(a) == _memory(b)


def _memory(t: Tensor) -> tuple[int, int]:
    return t._offset(), (t._value if t._storage is None else t._storage.value).aval.size


def laid_out_alike(t: Tensor, tangent: Tensor) -> Tensor:
    """`tangent`, or a copy of it, that lies in its memory as `t` does in its own. RuntimeError where elements of `t` are one place in memory."""
    if _same_layout(t, tangent):
        return tangent
    aval, view = t._aval, t._view
    if view is not None and repeats(view, aval):
        raise RuntimeError(REPEATED)
    with without_duals(per_thread.recorder):
        if view is None or (t.is_contiguous() and _memory(t) == (0, aval.size)):
            return lay_out(apply(_CLONE if tangent._aval.dtype == aval.dtype else cast_to(aval.dtype), (tangent,)), tuple(range(aval.ndim)))
        offset, size = _memory(t)
        memory, link = created(full_value((size,), 0, aval.dtype, aval.device)), by_strides(aval.shape, t._strides(), offset)
        made = make_view(per_thread.recorder, memory, apply(link.read, (memory,)), (link,), t._strides(), offset, "default")
        return apply_inplace(_COPY, (made, tangent))


# ---------------------------------------------------------------------- operations


def _pushed(bound: Any, operands: Sequence[Any], tangents: dict[int, Tensor], results: Sequence[Tensor]) -> dict[int, Tensor]:
    """The tangents of an operation's results, by their place."""
    mask = 0
    for i in tangents:
        mask |= 1 << i
    sig = signature(bound, tuple([o._aval if isinstance(o, Tensor) else type(o) for o in operands]))
    plan = plan_of(sig, mask)
    if plan is NO_PLAN:
        return {}
    saved = [operands[i] if i >= 0 else results[-1 - i] for i in plan.saves]
    found = apply(jvp_of(sig, plan), (*saved, *[tangents[i] for i in plan.inputs]))
    carrying = [i for i, a in enumerate(sig.avals) if dtypes.is_float(a.dtype)]
    return dict(zip(carrying, found if type(found) is tuple else (found,), strict=True))


def _apply_dual(rec: Recorder, bound: Any, operands: Sequence[Any], tangents: dict[int, Tensor]) -> Any:
    """`dispatch.apply` for operands of which some are dual."""
    with without_duals(rec):
        made = apply(bound, operands)
        results = made if type(made) is tuple else (made,)
        pushed = _pushed(bound, operands, tangents, results)
    for i, tangent in pushed.items():
        hold(results[i], tangent)
    node = next(iter([r._node for r in results if r._node is not None]), None)
    if isinstance(node, OpNode):
        _keep(node, operands, results)
    return made


def _apply_inplace_dual(rec: Recorder, bound: Any, operands: tuple[Any, ...], tangents: dict[int, Tensor]) -> Tensor:
    """`writing.apply_inplace` for operands of which some are dual."""
    target: Tensor = operands[0]
    aval = target._aval
    with without_duals(rec):
        # The tangents are computed of what the operands are before the write, which must not outdate it.
        before = [apply(_CLONE, (o,)) if o is target or (isinstance(o, Tensor) and o._storage is target._storage) else o for o in operands]
        written = tangents[0]._storage if 0 in tangents else None
        moved = {i: apply(_CLONE, (t,)) if i == 0 or (written is not None and t._storage is written) else t for i, t in tangents.items()}
        for i, t in moved.items():
            if before[i] is not operands[i]:
                hold(before[i], t)
        result = apply(bound, before)
        pushed = _pushed(bound, before, moved, result if type(result) is tuple else (result,)).get(0)
        if pushed is None:
            pushed = zeros_like(target)
        elif pushed._aval.dtype != aval.dtype:
            pushed = apply(cast_to(aval.dtype), (pushed,))
        apply_inplace(bound, operands)
    if dtypes.is_float(aval.dtype):  # integers have no derivative
        write_tangent(target, pushed)
    # A view's own grad_fn is made anew; the operation's node is within its base's.
    view = target._view
    node = target._node if view is None or view.base is None else getattr(view.base._node, "inner", None)
    if isinstance(node, OpNode):
        _keep(node, before, (target,))
    return target


def write_tangent(t: Tensor, new: Tensor) -> None:
    """A tensor was written to: its tangent now is `new`. A tangent that it has is written to, and so is its base's."""
    rec = per_thread.recorder
    base = None if t._view is None else _source(t._view)
    old = tangent_of(t)
    if old is None and base is not None and not (t._aval.shape == base._aval.shape and _same_layout(t, base)):
        with without_duals(rec):
            zeros = zeros_like(base, new)
        hold(base, zeros)
        old = tangent_of(t)
    if old is not None:
        with without_duals(rec):
            apply_inplace(_COPY, (old, new))
        return
    hold(t, new)
    if base is not None:  # one tensor is the tangent of both
        hold(base, new)


def zeros_like(t: Tensor, written: Tensor | None = None) -> Tensor:
    """Zeros that no graph leads to. written: what will be written to them, which may stand for a batch: so do they then."""
    aval = t._aval
    zeros = created(full_value(aval.shape, 0, aval.dtype, aval.device))
    return zeros if written is None else mapped_as(zeros, written)


# ---------------------------------------------------------------------- views


def _view_alike(tangent: Tensor, t: Tensor, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> Tensor:
    """The view of a tangent that `links` lead to from the tensor that it belongs to."""
    rec = per_thread.recorder
    with without_duals(rec):
        out = tangent
        for link in links:
            out = apply(link.read, (out, *link.numbers))
        return make_view(per_thread.recorder, tangent, out, links, strides, offset - t._offset() + tangent._offset(), "default")


# ---------------------------------------------------------------------- what nodes save


class SavedDual(Saved):
    """A dual tensor that a node saved: while its level is open, the tensor that the node gets again has its tangent."""

    __slots__ = ("inner", "tangent", "__weakref__")

    def __init__(self, inner: Saved, tangent: Tensor) -> None:
        self.inner = inner
        self.tangent: Tensor | None = tangent

    def tensor_for(self, node: Node | None) -> Any:
        """See Saved."""
        t = self.inner.tensor_for(node)
        if self.tangent is not None and per_thread.recorder.level is not None and tangent_of(t) is None:
            hold(t, self.tangent)
        return t

    def release(self) -> None:
        """See Saved."""
        self.tangent = None
        self.inner.release()


def _keep(node: OpNode, operands: Sequence[Any], results: Sequence[Tensor]) -> None:
    """Let a node remember the tangents of what it saved."""
    if not node.saved:
        return
    level: Level = per_thread.recorder.flags.dual_level
    saved: list[Any] = list(node.saved)
    for i, place in enumerate(node.plan.saves):
        t = operands[place] if place >= 0 else results[-1 - place]
        tangent = tangent_of(t) if isinstance(t, Tensor) else None
        if tangent is not None and not isinstance(saved[i], SavedDual):
            saved[i] = SavedDual(keep_as_saved(node, i), tangent)
            level.holders.append(weakref.ref(saved[i]))
    node.saved = WithSaved(saved)


def keep_tangents_of_saved(saved: Sequence[Saved], tensors: Sequence[Any]) -> tuple[Saved, ...]:
    """What a node saved of `tensors`, with their tangents."""
    level: Level = per_thread.recorder.flags.dual_level
    found: list[Saved] = []
    for s, t in zip(saved, tensors, strict=False):
        tangent = None if t is None else tangent_of(t)
        if tangent is not None:
            s = SavedDual(s, tangent)
            level.holders.append(weakref.ref(s))
        found.append(s)
    return tuple(found)
