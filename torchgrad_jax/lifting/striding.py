"""Strides inside of a transform are those of memory outside. There the parts of a batch need not lie by themselves."""

from __future__ import annotations

from math import prod

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.strides import contiguous_strides

Strides = tuple[int, ...]
ACROSS = (
    "torchgrad_jax: what as_strided gives inside of vmap, of a batch whose parts do not lie in memory by themselves, cannot be written to: clone() "
    "it, or give vmap a batch whose first dimension it maps (in_dims=0) and that is contiguous."
)


def told(t: Tensor, shape: Strides, steps: Strides, begin: int) -> tuple[Strides, int] | None:
    """The strides and the offset outside of `t`, which is of a level. shape: of its memory there, of which the strides are `steps` and the offset is
    `begin`. None where it has none: it is not what the memory holds, seen by strides."""
    array = t._value.array if t._storage is None else t._storage.value.array
    whole = array.tensor._aval
    if t._view is None:
        return steps, begin
    if whole.dtype is not t._aval.dtype or not all([link.read.operator.by_strides for link in t._view.links]):
        return None

    def at(place: int) -> int:
        found = begin
        for n, step in zip(reversed(shape), reversed(steps), strict=False):
            place, i = divmod(place, n)
            found += i * step
        return found

    offset, strides, own = t._view.offset, [], contiguous_strides(shape)
    if not prod(t._aval.shape):
        return t._view.strides, begin
    first = at(offset)
    for n, stride in zip(t._aval.shape, t._view.strides, strict=True):
        strides.append(at(offset + stride) - first if n > 1 else steps[own.index(stride)] if stride in own else stride)
        if any([at(offset + i * stride) != first + i * strides[-1] for i in range(2, n)]):
            return None
    last = sum([(n - 1) * stride for n, stride in zip(t._aval.shape, t._view.strides, strict=True)])
    alike = at(offset + last) == first + sum([(n - 1) * s for n, s in zip(t._aval.shape, strides, strict=True)])
    return (tuple(strides), first) if alike else None


def refuse_beyond(shape: Strides, strides: Strides, offset: int, size: Strides, stride: Strides, start: int) -> None:
    """RuntimeError where what `as_strided` would give reaches memory before or behind a tensor."""
    if 0 in size:
        return
    end = start + 1 + sum([(n - 1) * s for n, s in zip(size, stride, strict=True)])
    own = offset + 1 + sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)])
    if start < offset or end > own:
        raise RuntimeError(
            f"result = tensor.as_strided({list(size)}, {list(stride)}, {start}) can access memory outside of `tensor`. `result` can access some "
            f"memory in range [{start}, {end}], but `tensor` can only access some memory in range [{offset}, {own}]. This is not supported inside "
            "of vmap, please try to rewrite the `as_strided` call as a sequence of PyTorch view operations"
        )
