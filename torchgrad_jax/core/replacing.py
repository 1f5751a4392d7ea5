"""A tensor that is given other memory, or another part of its own."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from torchgrad_jax.core.level import meet
from torchgrad_jax.core.made import detached, wrap
from torchgrad_jax.core.strided import as_strided
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.tracked_view import TrackedView
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import ARRAY, BoundOperator, Static
from torchgrad_jax.declaration.strides import contiguous_strides
from torchgrad_jax.memory.storage import Link, Replaced, Superseded, View, count_together
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Value


@lru_cache(maxsize=4096, typed=True)
def static_op(name: str, *statics: Any) -> BoundOperator:
    """An operator of one tensor with its static arguments in order."""
    return registry[name].bind((ARRAY, *map(Static, statics)))


def place(rec: Recorder, t: Tensor, content: Value, links: tuple[Link, ...], strides: tuple[int, ...], offset: int) -> None:
    """Make `t` the part of its own memory that `links` lead to from what it was. That counts as a write."""
    meet(t)
    storage, old = t._shared(), t._view
    storage.write(rec.alias(storage.value))
    made = TrackedView(None, links, 0, storage, strides, offset, "default")
    if old is not None:
        made.base, made.links, made.skip, made.made_in, made.asked = old.base, old.links + links, old.skip, old.made_in, old.asked
        made.node_seen = old.node_seen
    value = content if content.counter is None else rec.alias(content)
    value.counter, value.version = storage.counter, storage.counter.version
    t._view, t._value = made, value


def take_size(t: Tensor, shape: tuple[int, ...]) -> None:
    """Give a part of memory another shape, to be filled; where memory is too small, new memory."""
    if shape != t._aval.shape:
        resize_strided(t, shape)


def resize_strided(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A part of memory takes what lies there from its beginning on, in row-major order."""
    storage, offset, wanted = t._shared(), t._offset(), math.prod(shape)
    have = storage.value.aval.size - offset
    twin = detached(t)
    if wanted <= have:
        return give_memory(t, as_strided(twin, shape, contiguous_strides(shape), offset))
    flat = as_strided(twin, (have,), (1,), offset)
    rec = per_thread.recorder
    padded = rec.call(registry["constant_pad_nd"].bind((ARRAY, Static((0, wanted - have)), ARRAY)), (flat._content(), 0))[0]
    return give_memory(t, wrap(rec.call(static_op("view", shape), (padded,))[0]))


def give_memory(t: Tensor, source: Tensor) -> Tensor:
    set_data(t, source)
    assert t._storage is not None
    place(per_thread.recorder, t, t._content(), (), t._strides(), t._offset())
    return t


def set_data(t: Tensor, new: Any) -> None:
    """`t` takes over the memory of `new` but keeps its own history and version. A view ceases to be one.

    TypeError, RuntimeError with PyTorch's text for what is no tensor, or no floating point one where `t` requires a gradient.
    """
    if not isinstance(new, Tensor):
        raise TypeError(f"Variable data has to be a tensor, but got {type(new).__name__}")
    if t.requires_grad and not dtypes.is_float(new._aval.dtype):
        raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
    if new._aval.device is not t._aval.device and new.is_meta != t.is_meta:
        raise RuntimeError("Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type.")
    if new is t:
        return
    meet(t)
    meet(new)
    # Of what was computed its node may have kept the content, whose version the tensor goes on to count.
    former, source = t._storage if t._node is None else t._shared(), new._shared()
    edge, old = t._edge() if t._rg else None, t._content()
    past = per_thread.recorder.alias(old)
    if former is not None:
        past.counter, past.version = former.counter, former.counter.version
        if t._view is None:
            former.value = past
    content = new._content()
    storage = source if source is former else source.sibling()
    if former is not None and former is not source and not (former.inference or storage.inference):  # a tensor keeps its version counter
        count_together(former, storage)
    view = new._view
    t._storage = storage
    t._value = storage.value
    t._view = None if view is None else View(None, view.links, 0, storage, view.strides, view.offset, "default")
    if view is not None:
        value = per_thread.recorder.alias(content)
        value.counter, value.version = storage.counter, storage.counter.version
        t._value = value
    if edge is not None:
        if old.counter is None:
            old.version = 0
        old.counter = Replaced(t._value, past, edge)
    elif former is None:  # nobody else has this content
        old.counter, old.version = Superseded(t._value), 0
