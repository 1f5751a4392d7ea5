"""`as_strided`: a view of memory by strides, which may reach beyond the tensor that it is asked of; and memory seen as another dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchgrad_jax.core.duals import hold, laid_out_alike, passes, tangent_of
from torchgrad_jax.core.elements import end_of
from torchgrad_jax.core.history import beyond_memory, by_strides
from torchgrad_jax.core.made import detached, result
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.tracked_view import TrackedView, ViewOfBase
from torchgrad_jax.core.viewing import asked_for, is_conj, is_neg, mode_without_history, refuse_lost, viewed
from torchgrad_jax.core.writing import place_view
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.memory.storage import Link, Relayout, Storage, View, in_memory, links_between, read_through
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.recorder import per_thread

Links = tuple[Link, ...]


def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """Elements of the tensor's memory by strides, counted from `storage_offset`, its own where None. RuntimeError for what is not in it."""
    size, stride = tuple(size), tuple(stride)
    offset = input._offset() if storage_offset is None else storage_offset
    refuse_lost(input)
    check_strides(input, size, stride, offset)
    view = input._view
    out = viewed("as_strided", input, size, stride, storage_offset) if view is None else _of_memory(input, view, size, stride, offset)
    if View.replayed_somewhere and (view is None or view.base is None):
        begin = () if storage_offset is None else (storage_offset,)
        asked_for(out, input, lambda t, given: as_strided(t, [*map(given, size)], [*map(given, stride)], *map(given, begin)))
    return out


def _of_memory(input: Tensor, view: View, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Tensor:
    """`as_strided` of a tensor that is a part of its memory, or lies in it otherwise."""
    input._read()
    storage: Any = input._storage
    base, prefix = (input, view.links) if view.base is None else (view.base, view.links[: view.skip])
    turned = not all(link.read.operator.by_strides for link in view.links)
    if turned:
        prefix, back, start = (), _as_shown(input, storage), 0
    else:
        prefix, back, start = _to_memory(prefix, base, storage, offset, end_of(size, stride, offset))
    rec = per_thread.recorder
    links = (*prefix, *back, by_strides(size, stride, offset - start))
    made_in = "default" if rec.grad_enabled else mode_without_history()
    if made_in == "default" or view.made_in == "inference":
        made_in = view.made_in
    made = TrackedView(base, links, len(prefix), storage, stride, offset, made_in)
    value = read_through(rec, links, storage.value)
    node = None
    if rec.grad_enabled and input.requires_grad:
        of_view = turned or base is not input  # what it takes from memory outside of that has no gradient
        links = (in_memory(input, storage), by_strides(size, stride, offset)) if of_view else links_between(base, made, storage)
        node = ViewOfBase(rec, links, input, value.aval)
    out = place_view(result(value, node, 0), made, storage)
    if passes(rec):
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
    have = input._aval.size if input._storage is None else input._storage.value.aval.nbytes // input.element_size()
    refusal = beyond_memory(size, stride, offset, input.element_size(), have)
    if refusal is not None:
        raise RuntimeError(refusal)


def _as_shown(input: Tensor, storage: Storage) -> Links:
    """The operations from a storage's content to memory of elements as the tensor shows them: of its dtype, and conjugated if it is. RuntimeError
    where they are negative."""
    if is_neg(input):
        raise RuntimeError("torchgrad_jax has no as_strided of the imaginary part of a conjugated tensor; use resolve_neg() first")
    memory, steps = storage.value.aval, list[tuple[Any, ...]]()
    if _parts_of(memory.dtype) != _parts_of(input._aval.dtype):
        steps += _seen_as(memory, input._aval.dtype)
    elif memory.dtype.kind != "c" and input.is_complex():
        pairs = memory.size // 2
        steps += [("view", (memory.size,)), ("view", (pairs, 2)), ("view_as_complex",)]
        if memory.size % 2:
            steps.insert(1, ("slice", 0, ARRAY, 2 * pairs, 1))
    elif memory.dtype.kind == "c" and not input.is_complex():
        steps.append(("view_as_real",))
    if is_conj(input):
        steps.append(("_conj",))
    found = []
    for name, *arguments in steps:
        read = registry[name].bind((ARRAY, *[a if a is ARRAY else Static(a) for a in arguments]))
        found.append(Link(read, None, (0,) if ARRAY in arguments else ()))
    return tuple(found)


def _parts_of(dtype: np.dtype) -> np.dtype:
    """The dtype of the parts of complex numbers, of others their own."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def _seen_as(memory: Any, dtype: np.dtype) -> list[tuple[Any, ...]]:
    """The operations from memory to as many elements of another dtype as are in it."""
    old, new = memory.dtype.itemsize, dtype.itemsize
    whole = memory.nbytes // max(old, new) * max(old, new) // old
    steps: list[tuple[Any, ...]] = [("view", (memory.size,))]
    if whole != memory.size:
        steps.append(("slice", 0, ARRAY, whole, 1))
    return [*steps, ("view_dtype", dtype, max(old // new, 1), max(new // old, 1))]


def _to_memory(prefix: Links, base: Tensor, storage: Storage, begin: int, end: int) -> tuple[Links, Links, int]:
    """The operations from a storage's content to a base; those from there to an array in memory's order that has what lies between `begin` and
    `end`; where in memory this array begins."""
    if all(isinstance(link, Relayout) for link in prefix):
        return prefix, tuple([Link(*link.undo, ()) for link in reversed(prefix) if isinstance(link, Relayout)]), 0
    start = base._offset()
    if base._storage is storage and base.is_contiguous() and start <= begin and end <= start + base._aval.size:
        return prefix, (), start
    return (), (), 0  # from outside of the base


# ---------------------------------------------------------------------- as another dtype


def reinterpreted(input: Tensor, dtype: dtypes.dtype) -> Tensor:
    """The same memory as elements of another dtype, without history. RuntimeError where sizes, strides or the offset do not allow it."""
    for name, is_so in (("conjugate view tensors", is_conj), ("tensors with negative bit set", is_neg)):
        if is_so(input):
            raise RuntimeError(f"torch.Tensor.view is not supported for {name} when converting to a different dtype.")
    old, new = input._aval.dtype.itemsize, dtype.np.itemsize
    if dtype.np == np.bool_ and old != 1:
        raise RuntimeError(
            f"torchgrad_jax cannot view {input.dtype.title} as Bool: other bytes than 0 and 1 would be lost where the view is written to. "
            "View it as uint8 and compare that with 0."
        )
    if old != new:
        _check_sizes(input, old, new, f"to view {input.dtype.title} as {dtype.title} (different element sizes)")
    made = viewed("view_dtype", detached(input), dtype.np, max(old // new, 1), max(new // old, 1))
    assert made._view is not None
    made._view.offset = input._offset() * old // new  # counted in its own elements
    return made


def _check_sizes(input: Tensor, old: int, new: int, doing: str) -> None:
    shape, strides, times = input._aval.shape, input._strides(), new // old
    if not shape:
        raise RuntimeError(f"self.dim() cannot be 0 {doing}")
    if strides[-1] != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 {doing}, but got {strides[-1]}")
    if times < 2:
        return
    if shape[-1] % times:
        raise RuntimeError(f"self.size(-1) must be divisible by {times} {doing}, but got {shape[-1]}")
    if input._offset() % times:
        raise RuntimeError(f"self.storage_offset() must be divisible by {times} {doing}, but got {input._offset()}")
    for dim, stride in enumerate(strides[:-1]):
        if stride % times:
            raise RuntimeError(f"self.stride({dim}) must be divisible by {times} {doing}, but got {stride}")
