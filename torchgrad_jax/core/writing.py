"""Writing into tensors: what becomes of the storage, the views and the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torchgrad_jax.core import blank
from torchgrad_jax.core.dispatch import apply, for_inference, make_node, noticed, settled, turn
from torchgrad_jax.core.elements import fill_at_hand, overlap_in_part
from torchgrad_jax.core.fields import content_of, needs_grad, read
from torchgrad_jax.core.history import REPEATED, before_write, links_to_write, rebase, repeats, unwrite
from torchgrad_jax.core.level import meet
from torchgrad_jax.core.made import wrap
from torchgrad_jax.core.op_node import pack_operands, pack_results
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.tracked_view import PrimalView, TrackedView, raise_by_origin
from torchgrad_jax.declaration import dtypes, promotion
from torchgrad_jax.declaration.operator import ARRAY, NUMBERS, Static, plain_number
from torchgrad_jax.memory.storage import Link, Storage, View, begin_view, put_content, write_through
from torchgrad_jax.operators import registry
from torchgrad_jax.operators.pointwise import cast_to
from torchgrad_jax.runtime.elsewhere import Elsewhere
from torchgrad_jax.runtime.recorder import LOOK, Recorder, per_thread, record
from torchgrad_jax.runtime.user_code import warn_once, warn_user
from torchgrad_jax.runtime.value import Aval, Value

_CLONE = registry["clone"].bind((ARRAY,))
LEAF_USED = "a leaf Variable that requires grad has been used in an in-place operation."
LEAF = "a leaf Variable that requires grad is being used in an in-place operation."
VIEW_OF_LEAF = "a view of a leaf Variable that requires grad is being used in an in-place operation."


_FILLS = frozenset(("fill_number", "zero"))


def overwrite(t: Tensor, value: Value) -> None:
    """Put a new content into a tensor's memory; its views and its base see it."""
    rec = per_thread.recorder
    if rec.level is not None:
        meet(t)
    storage = t._storage
    if storage is None:
        storage = t._shared()
    if value.counter is not None:
        value = rec.alias(value)
    view = t._view
    if view is None:
        storage.write(value)
        t._value = value  # so that the first content is not held
        return
    if value.aval.size:
        content = write_through(rec, links_to_write(view, view.links, t._value.aval, view.offset), storage.value, value)
    else:  # nothing is written, and what it is no part of may be
        content = rec.alias(storage.value)
    if type(storage) is Storage:
        put_content(storage, content)
    else:
        storage.write(content)
    part_written(t, value, content)


def part_written(t: Tensor, value: Value, content: Value) -> None:
    """Note that a view holds `value`, which has been written to its memory: that is `content` now."""
    storage: Any = t._storage
    view: Any = t._view
    counter, base = storage.counter, view.base
    value.counter, value.version = counter, counter.version
    if base is not None:
        value.part = True
        if base._view is None:
            base._value = content  # so that the first content is not held
    t._value, view.seen = value, storage.writes


def rewrite(t: Tensor, value: Value, name: str) -> None:
    """`overwrite` where no operation in place writes, but the function `name`: inside of transforms it is done where the tensor is from."""
    rec = per_thread.recorder
    if not (rec.rare and rec.level is not None and rec.level.rewritten(t, value, name)):
        overwrite(t, value)


@contextmanager
def holding(t: Tensor, value: Value) -> Iterator[None]:
    """While the block runs, the tensor's memory holds `value`: a write that no version counter counts, taken back at the end."""
    storage, view = t._shared(), t._view
    if view is not None:
        links = links_to_write(view, view.links, t._value.aval, view.offset)
        value = write_through(per_thread.recorder, links, storage.value, value)
    storages = [s for s in (r() for r in storage.siblings) if s is not None] if storage.siblings else [storage]
    kept = [s.value for s in storages]
    try:
        for s in storages:
            lent = per_thread.recorder.alias(value)
            lent.counter, lent.version = s.counter, s.counter.version
            s.value = lent
            s.writes += 1
        yield
    finally:
        for s, content in zip(storages, kept, strict=True):
            s.value = content
            s.writes += 1


def check_differentiable(t: Tensor) -> None:
    """PyTorch's refusals of in-place writes that extend the graph. RuntimeError."""
    view = t._view
    if view is not None and (base := view.base) is not None:
        if view.made_in != "default":
            raise_by_origin(t, view, "is being modified inplace")
        if base._node is None and needs_grad(t):
            raise RuntimeError(VIEW_OF_LEAF)
    # A view that requires a gradient since its base was written to is a leaf to PyTorch until its grad_fn is asked for.
    if t._node is None and needs_grad(t) and not (view is not None and view.node_seen == -1):
        raise RuntimeError(LEAF)


def check_writable(rec: Recorder, t: Tensor, *sources: Tensor) -> None:
    """PyTorch's refusals of in-place writes, from what `sources` hold. RuntimeError."""
    check_history(rec, t, *sources)
    check_memory("", (t, *sources))


def check_history(rec: Recorder, t: Tensor, *sources: Tensor) -> None:
    """PyTorch's refusals of what changes a tensor in place, be it no more than its layout. RuntimeError."""
    if rec.grad_enabled and (t.requires_grad or any(s.requires_grad for s in sources)):
        check_differentiable(t)


def check_memory(name: str, operands: tuple[Any, ...]) -> bool:
    """RuntimeError where several elements of the first operand are one place in memory, or parts of it are read under other indices. Whether
    the operator, named `name`, writes to several such elements nevertheless."""
    if name in _FILLS:
        return False
    t = operands[0]
    view, storage = t._view, t._storage
    for o in operands[1:-1] if name in _BY_NUMBER else operands[1:]:
        if isinstance(o, Tensor):
            if storage is not None and o is not t:
                refuse_part(t, o)
            if name in _ELSEWHERE and t._aval.size and (o is t or (o._storage is not None and storage is not None and _is_same(t, o))):
                raise RuntimeError(OVERLAP)
    if view is None or not repeats(view, t._aval) or (name == "copy" and _is_same(t, operands[1])):
        return False
    operator = registry.get(name)
    if operator is None or operator.into_expanded is None:
        raise RuntimeError(REPEATED)
    called, like = operator.into_expanded
    warn_user(
        f"Use of {called} on expanded tensors is deprecated. Please clone() the tensor before performing this operation. This also applies to "
        f"advanced indexing e.g. {like}"
    )
    return True


def refuse_part(t: Tensor, read: Tensor) -> None:
    """RuntimeError where parts of what is written to `t` are read under other indices."""
    storage, other = t._storage, read._storage
    if storage is not None and other is not None and (
        other is storage or (storage.siblings is not None and other.siblings is storage.siblings)
    ) and overlap_in_part(t, read):  # fmt: skip
        raise RuntimeError(OVERLAP)


# What is read before anything is written: the last operand of these is one number.
_BY_NUMBER = frozenset(("fill_tensor", "masked_fill", "index_fill_tensor"))
# These write elsewhere than where they read, so that they refuse even the very tensor that they write to.
_ELSEWHERE = frozenset(("index_add", "index_copy", "index_reduce", "index_put", "put", "scatter_src", "scatter_add", "scatter_reduce"))
OVERLAP = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
    "Please clone() the tensor before performing the operation."
)


def _expanded_alike(rec: Recorder, target: Tensor, bound: Any, old: Value, new: Value) -> Value:
    """`new`, computed of an expanded tensor as if its elements were apart, with those alike that are one place in memory."""
    assert target._view is not None
    dims = tuple(i for i, (s, n) in enumerate(zip(target._view.strides, old.aval.shape, strict=True)) if s == 0 and n > 1)
    alike = registry["written_to_expanded"].bind((ARRAY, ARRAY, Static(dims), Static(bound.statics.get("accumulate", False))))
    return rec.call(alike, (old, new))[0]


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same elements in the same order."""
    one, other = a._storage, b._storage
    assert one is not None
    shared = one is other or (other is not None and one.siblings is not None and one.siblings is other.siblings)
    return shared and a._aval is b._aval and a._strides() == b._strides() and a._offset() == b._offset()


def memory_of(t: Tensor) -> int:
    """A number that tells the memory of a tensor from others, as long as these live."""
    held = t._storage
    return id(t) if held is None else id(held if held.siblings is None else held.siblings)


def overlaps(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have memory in common, as far as their strides tell."""
    if a is b:
        return a._aval.size > 0
    if a._storage is None or b._storage is None or (a._storage is not b._storage and (
        a._storage.siblings is None or a._storage.siblings is not b._storage.siblings
    )):  # fmt: skip
        return False
    return a._aval.size > 0 and b._aval.size > 0 and (_is_same(a, b) or overlap_in_part(a, b))


def apply_inplace(bound: Any, operands: tuple[Any, ...]) -> Tensor:
    """An operation whose result goes into its first operand."""
    rec = per_thread.recorder
    if rec.writes is not None:
        rec.writes.append((bound, operands))
    target: Tensor = operands[0]
    if target._view is not None and bound.operator.name in _FILLS and fill_at_hand(target, operands[1] if len(operands) > 1 else 0):
        return target
    if rec.rare and rec.level is not None and (found := rec.level.apply_inplace(bound, operands)) is not NotImplemented:
        return found
    operands = tuple([o if isinstance(o, Tensor) or type(o) in NUMBERS else plain_number(o) for o in operands])
    operator, storage = bound.operator, target._storage
    mask = _extends_graph(rec, bound, operands) if rec.grad_enabled else 0
    # That the target may not be written to is told before what is out of date.
    old = content_of(target)
    values = (old, *[o if not isinstance(o, Tensor) else content_of(o) if o is target else read(o) for o in operands[1:]])
    expanded = (storage is not None or operator.name in _ELSEWHERE) and check_memory(operator.name, operands)
    if mask and operator.written:
        answer = rec.call(bound, values)[0]
        bound, operands, values = registry[operator.written].bind((ARRAY,) * 3), (*operands, wrap(answer)), (*values, answer)
    try:
        out = record(rec, bound, values)
        sig = out.signature
    except Elsewhere as place:
        if settled(operands):
            return apply_inplace(bound, operands)
        out, sig = place.call(rec, bound, values)
    if out.aval is not old.aval:
        out = fit(rec, out, old.aval, operator.name)
    if expanded:
        out = _expanded_alike(rec, target, bound, old, out)
    node = None
    if mask:
        # What is saved of the target is its old content, which nobody can write to any more: a copy, be the target an inference tensor.
        if rec.turned & LOOK and _all_ordinary(operands[1:]):
            rec.turned &= ~LOOK
        node = make_node(rec, sig, mask, operands, (rec.alias(old), *values[1:]), out)
        if rec.rare and node is not None:
            pack_operands(rec, node, operands, partial(apply, _CLONE, (target,)))
    if rec.rare:
        noticed(rec, bound, values, out, node)
        if node is None and rec.level is not None:
            rec.level.writes_apart(target)
    if node is None:
        overwrite(target, out)
        return target
    before = before_write(target)
    try:
        overwrite(target, out)
        rebase(target, node)
    except BaseException:
        unwrite(target, before)
        raise
    if rec.rare:
        pack_results(rec, node, target)
    return target


def _extends_graph(rec: Recorder, bound: Any, operands: tuple[Any, ...]) -> int:
    """Which operands of an operation that writes to the first one need gradients, as bits; 0 where the graph goes on without it. RuntimeError where
    that may not be written to."""
    mask = _followed(operands) if bound.differentiable or bound.operator.written else 0  # logical_and_ and the like go unnoticed
    if mask and settled(operands):
        mask = _followed(operands)
    if not mask:
        return 0
    target, storage = operands[0], operands[0]._storage
    inference = None if type(storage) is Storage or storage is None or not storage.inference else storage
    if inference is not None and for_inference(bound, operands):
        return 0
    check_differentiable(target)
    if rec.turned:
        turn(rec)
    # An inference tensor is refused as soon as it has been written to.
    return 0 if inference is not None and not inference.counted and not rec.inference else mask


def _followed(operands: Sequence[Any]) -> int:
    """Which operands need gradients, as bits."""
    mask, bit = 0, 1
    for o in operands:
        if isinstance(o, Tensor) and needs_grad(o):
            mask |= bit
        bit <<= 1
    return mask


def _all_ordinary(operands: Sequence[Any]) -> bool:
    """Whether there are tensors among `operands`, and none is an inference tensor."""
    kinds = [o._storage is not None and o._storage.inference for o in operands if isinstance(o, Tensor)]
    return bool(kinds) and not any(kinds)


def fit(rec: Recorder, value: Value, aval: Aval, name: str = "") -> Value:
    """The result as the target holds it. RuntimeError with PyTorch's text where it cannot."""
    if value.aval.shape != aval.shape:
        raise RuntimeError(
            f"output with shape {list(aval.shape)} doesn't match the broadcast shape {list(value.aval.shape)}"
        )  # fmt: skip
    if not promotion.can_cast(value.aval.dtype, aval.dtype):
        a, wanted = dtypes.of(value.aval.dtype).title, dtypes.of(aval.dtype)
        b = wanted.word if name and registry[name].names_c_types else wanted.title
        raise RuntimeError(f"result type {a} can't be cast to the desired output type {b}")
    return rec.call(cast_to(aval.dtype), (value,))[0]


_FILL_NUMBER, _FILL_TENSOR = (registry[name].bind((ARRAY, ARRAY)) for name in ("fill_number", "fill_tensor"))


def warn_of_lost_parts(given: Any, kept: Any) -> None:
    """Warn once where a conversion from one dtype to another loses imaginary parts."""
    if given.kind == "c" and kept.kind not in "cb":
        warn_once("Casting complex values to real discards the imaginary part")


def fill_(self: Tensor, value: Any) -> Tensor:
    """Write `value`, a number or a 0-dim tensor, everywhere. RuntimeError for a tensor of more dimensions."""
    if not isinstance(value, Tensor):
        value = plain_number(value)
        if not isinstance(value, NUMBERS):
            raise TypeError(f"fill_() received an invalid combination of arguments - got ({type(value).__name__})")
        value = promotion.fitting(value, self._aval.dtype)
        return apply_inplace(_FILL_NUMBER, (self, value))
    if value._aval.ndim:
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value._aval.ndim} dimensions.")
    if value._aval.dtype is not self._aval.dtype:
        warn_of_lost_parts(value._aval.dtype, self._aval.dtype)
    return apply_inplace(_FILL_TENSOR, (self, value))


# ---------------------------------------------------------------------- making views


def make_view(rec: Recorder, base_of: Tensor, out: Tensor, links: tuple[Link, ...], strides: tuple[int, ...], offset: int, made_in: str) -> Tensor:
    """Make `out`, just computed from `base_of` by `links`, share its memory."""
    if rec.rare and rec.level is not None:
        rec.level.view_made(base_of, out, links, strides, offset)
    view = view_of(base_of, links, strides, offset, made_in)
    storage: Any = base_of._storage
    return place_view(out, view, storage)


def view_of(base_of: Tensor, links: tuple[Link, ...], strides: tuple[int, ...], offset: int, made_in: str) -> View:
    """What a tensor is that `links` make of `base_of`."""
    storage = base_of._storage
    if storage is None:
        storage = base_of._shared()
    parent = base_of._view
    base, skip = base_of, 0
    if parent is not None:
        links = parent.links + links
        if parent.base is None:
            skip = len(parent.links)
        else:
            base, skip = parent.base, parent.skip
            if made_in == "default" or parent.made_in == "inference":
                made_in = parent.made_in
    view: View = blank.view(TrackedView)
    begin_view(view, base, links, skip, storage, strides, offset, made_in)
    if type(parent) is PrimalView:
        view = PrimalView(base, links, skip, storage, strides, offset, made_in)
        view.source = base_of if parent.source is None else parent.source
    return view


def place_view(out: Tensor, view: View, storage: Storage) -> Tensor:
    """Make `out`, just computed, the part of a storage that `view` describes."""
    if type(storage) is not Storage and storage.inference:  # its views have no base and no history
        view.base, view.skip = None, 0
        out._node, out._nr, out._rg = None, 0, False
        if storage.counted:
            storage = storage.sibling()
            storage.counted, view.seen = False, storage.writes
    elif View.replayed_somewhere and per_thread.recorder.flags.view_replay:
        view.replay = True
    value = out._value
    if value.counter is None or out._storage is not None:  # in inference mode `out` was given memory of its own
        value.counter, value.version = storage.counter, storage.counter.version
    if view.made_in != "default":
        value.made_in = view.made_in
    out._view = view
    out._storage = storage
    return out
