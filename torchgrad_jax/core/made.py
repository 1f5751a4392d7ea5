"""New tensors: of Values, and without history on the memory of others. Every operation makes some, so this is compiled where there is a compiler
(`torchgrad_jax/_typed`).
"""

from __future__ import annotations

from torchgrad_jax.core import blank
from torchgrad_jax.core.level import in_transform, meet, settle
from torchgrad_jax.core.node import Node
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.memory.storage import InferenceStorage, Storage, View
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Value


def wrap(value: Value) -> Tensor:
    """A new tensor without history that has `value` as its content."""
    t = blank.tensor(Tensor)
    t._value = value
    t._storage = t._view = t._node = t._extra = None
    t._rg = False
    t._nr = 0
    return t


def result(value: Value, node: Node | None, nr: int) -> Tensor:
    """A new tensor, the `nr`-th result of `node` if there is one."""
    t = blank.tensor(Tensor)
    t._value = value
    t._storage = t._view = t._extra = None
    t._rg = node is not None
    t._node = node
    t._nr = nr
    return t


def fresh(rec: Recorder, value: Value) -> Tensor:
    """A new tensor without history that has its memory for itself: in inference mode, an inference tensor."""
    t = blank.tensor(Tensor)
    t._value = value
    t._storage = t._view = t._node = t._extra = None
    t._rg = False
    t._nr = 0
    if rec.inference:
        if value.counter is not None:  # a Value belongs to one storage
            t._value = rec.alias(value)
        t._storage = InferenceStorage(t._value)
    return t


def created(value: Value) -> Tensor:
    """`fresh` for what is made from no operand that is recorded."""
    rec = per_thread.recorder
    t = fresh(rec, value)
    if rec.rare and rec.level is not None:
        rec.level.created(t)
    return t


# ---------------------------------------------------------------------- on the memory of others


def detached(t: Tensor) -> Tensor:
    """A tensor without history on the same memory."""
    if in_transform() and (cut := per_thread.recorder.level.detached(t)) is not NotImplemented:
        return cut
    settle(t)  # the twin must know which history it lacks
    meet(t)
    if getattr(t._content(), "leaf", None) is not None:
        _renew(t)
    value = t._content()
    storage: Storage = t._shared()
    if storage.inference:
        return data_of(t)
    twin = wrap(value)
    share(twin, storage, t._view)
    return twin


def _renew(t: Tensor) -> None:
    """Let a leaf go on with another Value of its content: what is saved from now on may be its twin's, what was saved before is its own."""
    storage = t._shared()
    old = t._content()
    new = per_thread.recorder.alias(old)
    new.counter, new.version = old.counter, old.version
    for name in ("signature", "part", "made_in"):
        if (mark := getattr(old, name, None)) is not None:
            setattr(new, name, mark)
    if t._view is None:
        storage.value = new
    else:
        t._value = new


def data_of(t: Tensor) -> Tensor:
    """A tensor without history on the same memory that counts its versions for itself."""
    if in_transform() and (cut := per_thread.recorder.level.detached(t)) is not NotImplemented:
        return cut
    settle(t)
    meet(t)
    storage = t._shared().sibling()
    if t._view is None:
        twin = wrap(storage.value)
    else:
        t._shared().know(t)
        value = per_thread.recorder.alias(t._content())
        value.counter = storage.counter
        twin = wrap(value)
    share(twin, storage, t._view)
    if t._view is not None:
        storage.know(twin)
    return twin


def share(t: Tensor, storage: Storage, view: View | None) -> None:
    """Make `t` the part of a storage that `view` describes, without a base."""
    t._storage = storage
    storage.twinned = True
    level = per_thread.recorder.level
    if level is not None:
        level.twin_made(t)
    t._view = None if view is None else View(None, view.links, 0, storage, view.strides, view.offset, "default")
