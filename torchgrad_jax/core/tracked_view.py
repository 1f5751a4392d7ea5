"""Views that have a base: the grad_fn of such a view is made anew when the base was written to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgrad_jax.core.anomaly import note_node
from torchgrad_jax.core.dispatch import apply, plan_of
from torchgrad_jax.core.made import result, wrap
from torchgrad_jax.core.messages import MODIFIED_INDIRECTLY, untracked
from torchgrad_jax.core.node import Node, Nowhere, kind_of
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.memory.filled import full_value
from torchgrad_jax.memory.storage import Link, Storage, View, links_between, read_through, with_numbers
from torchgrad_jax.runtime.operation import signature
from torchgrad_jax.runtime.recorder import Recorder, per_thread
from torchgrad_jax.runtime.value import Aval


class TrackedView(View):
    """See View. It takes part in the gradient of its base."""

    __slots__ = ()

    def regenerate(self, t: Tensor, storage: Storage) -> None:
        """Give the view, whose base was written to, a grad_fn that leads to the base's present one. RuntimeError where autograd cannot follow."""
        base = self.base
        if not base._rg and t._node is None:
            return
        if self.made_in != "default":
            raise_by_origin(t, self, MODIFIED_INDIRECTLY)
        self.node_seen = storage.counter.version
        t._rg = True
        made = history_of_view(t, links_between(base, self, storage), base, self.replay)
        if t._extra is not None and t._extra.retains_grad:
            keep_retaining(t, made)
        t._node, t._nr = made, 0


class PrimalView(TrackedView):
    """A view whose tangent is no part of the base's: what `unpack_dual` returned, and views of that.

    source: what `unpack_dual` returned; None for that itself.
    """

    __slots__ = ("source",)
    source: Any


def keep_retaining(t: Tensor, node: Node, nr: int = 0) -> None:
    """A tensor that retains its gradient retains that of its new content. Its hooks stay with the old one."""
    old = t._node
    if t._extra is not None:
        t._extra.hooked = None
    if t._extra is not None and t._extra.retains_grad and old is not None and old.hooks is not None:
        keep = old.hooks.retain.pop(t._nr, None)
        if keep is not None:
            node.own_hooks().retain[nr] = keep


def raise_by_origin(t: Tensor, view: View, how: str) -> None:
    """Refuse a write that reaches a view which autograd cannot follow. RuntimeError with PyTorch's text."""
    raise RuntimeError(untracked(view.made_in, t._node, t._nr, how))


def history_of_view(t: Tensor, links: tuple[Link, ...], base: Tensor, again: bool) -> Node:
    """A node that leads to the base. again: the view's operations are done again, each with its own node."""
    if again:
        return replayed(links, base)
    if not all(link.read.operator.by_strides for link in links):  # PyTorch does the view operations again
        return replay(links, base)
    return ViewOfBase(per_thread.recorder, links, base, t._value.aval)


def replayed(links: tuple[Link, ...], base: Tensor) -> Any:
    """The grad_fn of the view's operations done again from the base."""
    rec = per_thread.recorder
    before = rec.grad_enabled, rec.inference
    rec.grad_enabled, rec.inference = True, False
    try:
        t = base
        for link in links:
            t = apply(link.read, (t, *link.numbers))
    finally:
        rec.grad_enabled, rec.inference = before
    return t._node


def replay(links: tuple[Link, ...], base: Tensor) -> Node:
    """The history of a view of `base`, made again: a node for each operation that strides do not tell, and one for those between two."""
    rec = per_thread.recorder
    before, rec.grad_enabled = rec.grad_enabled, True
    try:
        strided: tuple[Link, ...] = ()
        for link in links:
            if not link.read.operator.by_strides:
                base = apply(link.read, (_strided(rec, strided, base),))
                strided = ()
            else:
                strided += (link,)
        made = _strided(rec, strided, base)._node
        assert made is not None
        return made
    finally:
        rec.grad_enabled = before


def _strided(rec: Recorder, links: tuple[Link, ...], base: Tensor) -> Tensor:
    if not links:
        return base
    value = read_through(rec, links, base._read())
    return result(value, ViewOfBase(rec, links, base, value.aval), 0)


class ViewOfBase(Node):
    """The grad_fn of a view, made anew after its base was written to: PyTorch shows it as AsStridedBackward0."""

    __slots__ = ("links", "aval", "base_aval")
    is_view = skips_unneeded = True

    def __init__(self, rec: Any, links: tuple[Link, ...], base: Tensor, aval: Aval) -> None:
        self.links, self.aval, self.base_aval = links, aval, base._aval
        self.next = (base._edge() if base._rg else (Nowhere(), 0),)
        self.seq = rec.sequence
        self.hooks = None
        rec.sequence += 1
        if rec.rare:
            note_node(rec, self)

    def name(self) -> str:
        """See Node."""
        return "AsStridedBackward0"

    @property
    def output_avals(self) -> tuple[Aval, ...]:
        """See Node."""
        return (self.aval,)

    def describe(self) -> tuple[list[Any], list[Any]]:
        """See Node."""
        return [ViewOfBase, self.base_aval, *(x.read for x in self.links)], [n for x in self.links for n in x.numbers]

    def place(self, values: Sequence[Any]) -> dict[Node, Any]:
        """See Node."""
        return {self: with_numbers(self.links, values)}

    def run(self, calculus: Any, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        if calculus.tensors and not self.aval.size:  # nothing was taken, so no graph leads from the zeros
            base = self.base_aval
            return (wrap(full_value(base.shape, 0, base.dtype, base.device)),)
        return (self.pull(calculus, self.links if calculus.placed is None else calculus.placed[self], grads[0]),)

    def pull(self, calculus: Any, links: tuple[Link, ...], grad: Any) -> Any:
        """The base's gradient, given that of what the links lead to."""
        signatures = []
        aval = self.base_aval
        for link in links:
            sig = signature(link.read, (aval, *(kind_of(n) for n in link.numbers)))
            signatures.append(sig)
            aval = sig.avals[0]
        for sig, link in zip(reversed(signatures), reversed(links), strict=True):
            grad = calculus.call(plan_of(sig, 1).vjp_of((True,)), (grad, *link.numbers))
        return grad


ViewOfBase.__name__ = "AsStridedBackward0"
