"""The tensor that a saved Value was the content of, for users who ask a node what it saved.

A node keeps bare Values, and a Value does not know its tensor: a weak reference for each would cost every operation 150 ns. So the tensors that are
there are looked through, all at once, when somebody asks; what was found serves all nodes that are older than that look.
"""

from __future__ import annotations

import gc
import weakref

from torchgrad_jax.core.made import share, wrap
from torchgrad_jax.core.node import Node
from torchgrad_jax.core.saved import with_history
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import Value


class _Look:
    """The tensors that were there at one time, by the identity of their content. before: nodes numbered below this are older."""

    def __init__(self) -> None:
        self.recorder = id(per_thread.recorder)
        self.before = per_thread.recorder.sequence
        self.found: dict[int, list[weakref.ref[Tensor]]] = {}
        for o in gc.get_objects():
            if issubclass(type(o), Tensor) and (value := _peek(o)) is not None:  # proxies of others answer `isinstance` with code of theirs
                self.add(value, o)

    def add(self, value: Value, t: Tensor) -> None:
        """Know of one more."""
        self.found.setdefault(id(value), []).append(weakref.ref(t))

    def serves(self, node: Node) -> bool:
        """Whether what `node` saved was there."""
        return self.recorder == id(per_thread.recorder) and node.seq < self.before

    def holders(self, value: Value) -> list[Tensor]:
        """The tensors whose content `value` is."""
        living = [t for r in self.found.get(id(value), ()) if (t := r()) is not None]
        return [t for t in living if _peek(t) is value]


_last: _Look | None = None


def _peek(t: Tensor) -> Value | None:
    """The content of a tensor, which is not read: None where it would have to be."""
    try:
        storage, view = t._storage, t._view
        if storage is None or (view is not None and view.seen == storage.writes):
            return t._value
        return storage.peek() if view is None else None
    except AttributeError:  # another thread is making it
        return None


def _look(node: Node) -> _Look:
    global _last
    if _last is None or not _last.serves(node):
        _last = _Look()
    return _last


def holder_of(node: Node, value: Value, source: Node | None, nr: int) -> Tensor | None:
    """The tensor itself that `node` saved with this content, whose gradient goes to `source`; None where it is gone, or not to be told from twins."""
    same = [t for t in _look(node).holders(value) if (t._node is source and t._nr == nr if source is not None else not t._rg)]
    return same[0] if len(same) == 1 else None


def shown_again(node: Node, value: Value, source: Node | None, nr: int) -> Tensor:
    """What `node` saved: the tensor itself, and where it is the node's own result or gone one on the same memory."""
    look = _look(node)
    if source is not node and (t := holder_of(node, value, source, nr)) is not None:
        return t
    holders = look.holders(value)
    if holders:
        storage = holders[0]._shared()
        twin = wrap(holders[0]._content())
        share(twin, storage, holders[0]._view)
    else:  # so that a write to it is one to what was saved
        twin = wrap(value if value.counter is None else per_thread.recorder.alias(value))
        look.add(value, twin)
    return with_history(twin, source, nr)
