"""`as_strided`: a view of memory by strides, which may reach beyond the tensor that it is asked of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.ops.declare import ARRAY, Static, registry
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.value import constant
from torchgrad_jax.tensor.dispatch import LEVEL
from torchgrad_jax.tensor.history import REPEATING, writer
from torchgrad_jax.tensor.inplace import place_view
from torchgrad_jax.tensor.storage import Link, Relayout, Storage, View, links_between, read_through, with_numbers
from torchgrad_jax.tensor.tensor import Tensor, ViewOfBase, result
from torchgrad_jax.tensor.views import _view, mode_without_history, refuse_lost

Links = tuple[Link, ...]


def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Elements of the tensor's memory by strides, counted from `storage_offset`, its own where None. RuntimeError for what is not in it."""
    size, stride = tuple(size), tuple(stride)
    offset = input.storage_offset() if storage_offset is None else storage_offset
    refuse_lost(input)
    check_strides(input, size, stride, offset)
    view = input._view
    if view is None:
        return _view("as_strided", input, size, stride, offset)
    input._read()
    storage: Any = input._storage
    base, prefix = (input, view.links) if view.base is None else (view.base, view.links[: view.skip])
    prefix, back, start = _to_memory(prefix, base, storage, offset, _end(size, stride, offset))
    read = registry["as_strided"].bind((ARRAY, Static(size), Static(stride), Static(offset - start)))
    rec = per_thread.recorder
    links = (*prefix, *back, Link(read, writer(read), ()))
    made_in = "default" if rec.grad_enabled else mode_without_history()
    made = View(base, links, len(prefix), storage, stride, offset, view.made_in if made_in == "default" or view.made_in == "inference" else made_in)
    value = read_through(rec, links, storage.value)
    node = None
    if rec.grad_enabled and input.requires_grad:
        links = links_between(base._view, made)
        node = ViewOfBase(rec, links, base, value.aval) if base is input else StridedOfView(rec, links, input, value.aval)
    out = place_view(result(value, node, 0), made, storage)
    if rec.rare and rec.flags.get(LEVEL) is not None and not rec.inference:
        from torchgrad_jax.tensor.duals import hold, laid_out_alike, tangent_of

        tangent = tangent_of(input)
        if tangent is not None:  # it lies in its memory as the input does in its own
            hold(out, as_strided(laid_out_alike(input, tangent), size, stride, offset))
    return out


def check_strides(input: Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> None:
    """RuntimeError for what is no view of the memory."""
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    item = input.element_size()
    have = input._aval.size if input._storage is None else input._storage.value.aval.size
    needed = _end(size, stride, offset)
    if needed > have and 0 not in size:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {item} requiring a storage size of "
            f"{needed * item} are out of bounds for storage of size {have * item}"
        )


def _end(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> int:
    return offset + 1 + sum(s * (n - 1) for s, n in zip(stride, size, strict=True)) if 0 not in size else offset


def _to_memory(prefix: Links, base: Tensor, storage: Storage, begin: int, end: int) -> tuple[Links, Links, int]:
    """The operations from a storage's content to a base; those from there to an array in memory's order that has what lies between `begin` and
    `end`; where in memory this array begins."""
    if all(isinstance(link, Relayout) for link in prefix):
        return prefix, tuple([Link(*link.undo, ()) for link in reversed(prefix) if isinstance(link, Relayout)]), 0
    start = base.storage_offset()
    if base._storage is storage and base.is_contiguous() and start <= begin and end <= start + base._aval.size:
        return prefix, (), start
    return (), (), 0  # from outside of the base: a view that has no gradient


class StridedOfView(ViewOfBase):
    """The grad_fn of `as_strided` of a view. What it takes from memory outside of that view has no gradient."""

    __slots__ = ("through", "shares")

    def __init__(self, rec: Any, links: Links, input: Tensor, aval: Any) -> None:
        assert input._view is not None
        base = input._view.base
        super().__init__(rec, links, base, aval)
        self.through = links_between(base._view, input._view)
        self.next = (input._edge(),)
        # Of several elements of the view at one place, each has an equal part in the gradient.
        self.shares = _shares(input) if not REPEATING.isdisjoint(x.read.operator.name for x in self.through) else None

    def describe(self) -> tuple[list[Any], list[Any]] | None:
        """See Node."""
        if self.shares is not None:
            return None
        operations, numbers = super().describe()
        return [StridedOfView, *operations, None, *(x.read for x in self.through)], [*numbers, *(n for x in self.through for n in x.numbers)]

    def place(self, values: Sequence[Any]) -> dict[Any, Any]:
        """See Node."""
        count = sum(len(x.numbers) for x in self.links)
        return {self: (with_numbers(self.links, values[:count]), with_numbers(self.through, values[count:]))}

    def run(self, calculus: Any, grads: list[Any]) -> tuple[Any, ...]:
        """See Node."""
        links, through = (self.links, self.through) if calculus.placed is None else calculus.placed[self]
        grad = self.pull(calculus, links, grads[0])
        grad = read_through(calculus.recorder, through, grad, calculus.call)
        if self.shares is not None:
            shares = constant(np.asarray(self.shares, grad._aval.dtype if calculus.tensors else grad.aval.dtype))
            grad = calculus.call(registry["mul"].bind((ARRAY, ARRAY)), (grad, result(shares, None, 0) if calculus.tensors else shares))
        return (grad,)


StridedOfView.__name__ = "AsStridedBackward0"


def _shares(t: Tensor) -> np.ndarray:
    """For each element of `t`, one by the number of its elements at the same place."""
    places = np.zeros(t._aval.shape, int)
    for dim, (n, step) in enumerate(zip(t._aval.shape, t._strides(), strict=True)):
        places += (np.arange(n) * step).reshape([-1 if i == dim else 1 for i in range(places.ndim)])
    _, inverse, counts = np.unique(places, return_inverse=True, return_counts=True)
    return 1 / counts[inverse].reshape(places.shape)
