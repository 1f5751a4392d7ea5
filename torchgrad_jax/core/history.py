"""The graph around a write: what the written tensor, its base and the views of that are the results of from then on; and what it was before, so that
an interrupt between the write and its node leaves neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.anomaly import note_node
from torchgrad_jax.core.elements import end_of
from torchgrad_jax.core.fields import CopySlicesFields, edge_of
from torchgrad_jax.core.messages import FREED_MESSAGE
from torchgrad_jax.core.node import Calculus, Node, shown
from torchgrad_jax.core.op_node import OpNode
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.tracked_view import keep_retaining
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.declaration.strides import apart
from torchgrad_jax.memory.storage import Link, Relayout, Storage, View, links_between, read_through, with_numbers, write_through
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Aval

ZEROS_LIKE = registry["_zeros_of"].bind((ARRAY,))
_new = CopySlicesFields.__new__
REPEATED = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
    "Please clone() the tensor before performing the operation."
)


def rebase(t: Tensor, node: Node, nr: int = 0) -> None:
    """The tensor's content is now the `nr`-th output of `node`; if it is a view, its base's does in part."""
    view, storage = t._view, t._storage
    assert storage is not None
    counter = storage.counter
    if view is None or view.base is None:
        keep_retaining(t, node, nr)
        if not t._rg:
            counter.tracked = counter.version
        t._node, t._nr, t._rg = node, nr, True
        counter.writer = counter.version, node.name()
        return
    base: Tensor = view.base
    rec = per_thread.recorder
    copy = copy_slices(rec, base, view, storage, t._value.aval, node)
    keep_retaining(base, copy)
    if not base._rg:
        counter.tracked = counter.version
    base._node, base._nr, base._rg = copy, 0, True
    counter.writer = counter.version, copy.name()
    t._rg = True
    view.node_seen = -1  # regenerated when it is asked for
    if t._extra is not None and t._extra.retains_grad:
        view.regenerate(t, storage)


def copy_slices(rec: Recorder, base: Tensor, view: View, storage: Storage, aval: Aval, inner: Node) -> CopySlices:
    """The node of `base` after a write to `view`, a tensor of this aval, by the operation of `inner`."""
    made = _new(CopySlices)
    made.inner, made.aval = inner, base._aval
    made.links = links_to_write(view, links_between(base, view, storage), aval, view.offset - base._offset(), base._view)
    edges = inner.next
    places = inner.plan.inputs if isinstance(inner, OpNode) else inner.edge_places
    made.through_self = bool(places) and places[0] == 0
    rest = edges[1:] if made.through_self else edges
    made.has_base = base._rg
    made.repeats = repeats(view, aval)
    made.freed = False
    made.refusal = _beyond_base(base, view, aval) if made.links and made.links[0].read.operator.name == "in_memory" else None
    made.next = (edge_of(base), *rest) if base._rg else rest
    made.seq = rec.sequence
    rec.sequence += 1
    made.hooks = None
    if rec.rare:
        note_node(rec, made)
    return made


def links_to_write(view: View, links: tuple[Link, ...], aval: Aval, offset: int, base: View | None = None) -> tuple[Link, ...]:
    """The operations by which a view is written to: where one of several elements at one place may be left, that place in memory. base: how that
    lies in memory which `links` begin with."""
    if len(links) == 1:
        return links
    operators = [link.read.operator for link in links]
    if not any([operator.repeats and _repeats(link) for operator, link in zip(operators[:-1], links, strict=False)]):
        return links
    if not all([operator.by_strides for operator in operators]):
        raise RuntimeError("torchgrad_jax cannot write to a part of an expanded tensor that is seen conjugated or as another dtype; clone() it first")
    if operators[0].name == "in_memory":
        return (links[0], by_strides(aval.shape, view.strides, view.offset))
    to_memory = [] if base is None else [Link(*link.undo, ()) for link in reversed(base.links) if isinstance(link, Relayout)]
    return (*to_memory, by_strides(aval.shape, view.strides, offset))


def _repeats(link: Link) -> bool:
    """Whether several elements may be one place in memory by this operation."""
    statics = link.read.statics
    return link.read.operator.name != "as_strided" or not apart(statics["size"], statics["stride"])


def by_strides(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Link:
    """What `as_strided` does to memory."""
    read = registry["as_strided"].bind((ARRAY, Static(size), Static(stride), Static(offset)))
    return Link(read, None, ())


def beyond_memory(size: tuple[int, ...], stride: tuple[int, ...], offset: int, item: int, have: int) -> str | None:
    """PyTorch's text where a view, of elements of `item` bytes, is not within memory of `have` elements; None where it is."""
    needed = end_of(size, stride, offset)
    if needed <= have or 0 in size:
        return None
    return (
        f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {item} requiring a storage size of "
        f"{needed * item} are out of bounds for storage of size {have * item}"
    )


class CopySlices(Node, CopySlicesFields):  # type: ignore[misc] # see OpNode
    """The grad_fn of a tensor after a write to a view of it: the written part's gradient goes through `inner`, the rest
    straight on."""

    __slots__ = ()
    skips_unneeded = True

    def name(self) -> str:
        """See Node."""
        return "torch::autograd::CopySlices"

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """See Node."""
        return (shown(self.next[0]) if self.has_base else (None, 0), *self.inner.next_functions[1:])

    @property
    def edge_places(self) -> Sequence[int]:
        """See Node."""
        return [*([0] if self.has_base else []), *list(self.inner.edge_places)[1 if self.through_self else 0 :]]

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return (self.aval,)

    def describe(self) -> tuple[list[Any], list[Any]] | None:
        """See Node."""
        inner = self.inner
        if self.freed or not isinstance(inner, OpNode) or inner.saved is None:
            return None
        numbers = [n for x in self.links for n in x.numbers]
        return [CopySlices, self.aval, self.has_base, inner.plan, *(x.read for x in self.links)], [*numbers, *inner.saved]

    def place(self, values: Sequence[Any]) -> dict[Node, Any]:
        """See Node."""
        count = sum(len(x.numbers) for x in self.links)
        return {self: with_numbers(self.links, values[:count]), **self.inner.place(values[count:])}

    def run(self, calculus: Calculus, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        if self.freed:
            raise RuntimeError(FREED_MESSAGE)
        if self.refusal is not None:
            raise RuntimeError(self.refusal)
        rec, call = calculus.recorder, calculus.call
        links = self.links if calculus.placed is None else calculus.placed[self]
        grad = grads[0]
        part = read_through(rec, links, grad, call)
        needed, calculus.needed = calculus.needed, None  # the inner node's first edge leads to what the written part was, not into the graph
        through = self.inner.run(calculus, [part])
        calculus.needed = needed
        rest = through[1:] if self.through_self else through
        if not self.has_base:
            return rest
        if needed is not None and self.next[0][0] not in needed:
            return (None, *rest)
        if self.repeats:  # PyTorch writes the part's gradient into the whole's
            raise RuntimeError(REPEATED)
        own = through[0] if self.through_self else None
        if own is None:
            if not isinstance(self.inner, OpNode):  # the user's backward passes nothing on: PyTorch then drops the rest too
                return (None, *rest)
            own = call(ZEROS_LIKE, (part,))
        return (write_through(rec, links, grad, own, call), *rest)

    def content(self) -> Any:
        """See Node."""
        return self.inner.content()

    def put_back(self, content: Any) -> None:
        """See Node."""
        self.freed = False
        self.inner.put_back(content)

    def release(self) -> None:
        """See Node. PyTorch drops the inner node itself, whatever that has saved."""
        self.freed = True
        self.inner.release()


def _beyond_base(base: Tensor, view: View, aval: Aval) -> str | None:
    """PyTorch's text for a write to memory outside of the base, in whose gradient the view then has no place; None for others."""
    offset = view.offset - base._offset()
    if offset < 0:
        return f"Tensor: invalid storage offset {offset}"
    return beyond_memory(aval.shape, view.strides, offset, aval.dtype.itemsize, end_of(base._aval.shape, base._strides(), 0))


def repeats(view: View, aval: Aval) -> bool:
    """Whether several elements of a view are one place in memory by a stride of 0."""
    return 0 in view.strides and aval.size > 0 and any([s == 0 and n > 1 for s, n in zip(view.strides, aval.shape, strict=True)])


# ---------------------------------------------------------------------- what was before


def before_write(target: Tensor) -> tuple[Any, ...]:
    """The content and the place in the graph of a tensor, and the place of the one it is a view of."""
    storage: Any = target._storage or target._shared()
    value = storage.value if type(storage) is Storage else storage.peek()
    counter, view = storage.counter, target._view
    base: Any = None if view is None else view.base
    if view is None or base is None:
        return value, counter.version, target._node, target._nr, target._rg
    return value, counter.version, target._node, target._nr, target._rg, view.node_seen, base._node, base._nr, base._rg


def unwrite(target: Tensor, before: tuple[Any, ...]) -> None:
    """As if the tensor had not been written to since `before_write`."""
    value, version, *place = before
    storage: Any = target._storage
    if storage.peek() is not value:
        storage.restore(value, version)
    target._node, target._nr, target._rg, *rest = place
    if rest:
        view: Any = target._view
        base = view.base
        view.node_seen, base._node, base._nr, base._rg = rest
