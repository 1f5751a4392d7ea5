"""Operators for the sake of memory: filled with a number, with what else is to be there, with what is left where several elements are one place; and
not needed before its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import numpy_forms, numpy_parts
from torchgrad_jax.declaration.converting import broadcast_to, convert, where, zeros_like_grad
from torchgrad_jax.declaration.operator import NOT_IMPLEMENTED, SAME, op

Ints = tuple[int, ...]


@op("full_(int[] size, Scalar fill_value, dtype dtype)", method=False, toplevel=False, differentiable=False, numpy=numpy_forms.full)
def _full(fill_value: Any, size: tuple[int, ...], dtype: Any) -> Any:
    return jnp.broadcast_to(convert(fill_value, dtype), size)


@op("_constant(int[] size, int fill_value, dtype dtype)", method=False, toplevel=False, differentiable=False, numpy=numpy_forms.constant)
def _constant(size: tuple[int, ...], fill_value: int, dtype: Any) -> Any:
    return jnp.full(size, fill_value, dtype)


for _type, _name, _node in (("Scalar", "number", "FillBackward2"), ("Tensor", "tensor", "FillBackward3")):

    @op(f"fill_{_name}(Tensor self, {_type} value)", method=False, toplevel=False, promote=None, node=_node,
        grads={"self": zeros_like_grad, "value": lambda grad: grad.sum()}, numpy=numpy_forms.fill)  # fmt: skip
    def _fill(x: Any, value: Any) -> Any:
        """`value` everywhere."""
        return broadcast_to(convert(value, x.dtype), x.shape)


def _put_part(x: Any, value: Any, begins: Sequence[Any], dims: Ints, lengths: Ints, steps: Ints) -> Any:
    starts: list[Any] = [jnp.zeros((), begins[0].dtype)] * x.ndim
    shape, spans, strides = list(x.shape), list(x.shape), [1] * x.ndim
    for begin, dim, length, step in zip(begins, dims, lengths, steps, strict=True):
        starts[dim] = begin
        shape[dim] = max(length, 1)
        spans[dim], strides[dim] = (shape[dim] - 1) * step + 1, step
    chosen = [dim for dim, length in zip(dims, lengths, strict=True) if length < 0]
    src = jnp.expand_dims(broadcast_to(convert(value, x.dtype), tuple([n for i, n in enumerate(shape) if i not in chosen])), chosen)
    if shape != spans:
        part = lax.dynamic_slice(x, starts, spans)
        src = part.at[tuple([slice(None, None, step) for step in strides])].set(src)
    return lax.dynamic_update_slice(x, src, starts)


# In how many dimensions a part may be chosen that is written to by one operation.
MOST_PARTS = 4
# The dtypes of what is written so, as NumPy's characters: those to which it converts a number that fits as PyTorch does.
PUT_KINDS = numpy_parts.PUT_KINDS
for _count in range(1, MOST_PARTS + 1):
    _begins = "".join([f", Index begin{i}" for i in range(_count)])

    @op(f"put_part{_count}(Tensor self, Tensor|Scalar value{_begins}, int[] dims, int[] lengths, int[] steps)", method=False, toplevel=False,
        out=False, promote=None, differentiable=False, numpy=numpy_parts.put_part)  # fmt: skip
    def _put(x: Any, value: Any, *begins: Any, dims: Ints, lengths: Ints, steps: Ints) -> Any:
        """`x` with `value`, of its dtype and broadcast, in the part that begins so in each of `dims`, of that length and step; a length of -1 is of
        an index, by which the dimension is not there."""
        return _put_part(x, value, begins, dims, lengths, steps)


@op("written_to_expanded(Tensor self, Tensor written, int[] dims, bool accumulate)", method=False, toplevel=False, out=False)
def _written_to_expanded(x: Any, written: Any, dims: tuple[int, ...], accumulate: bool) -> Any:
    """What `x`, whose elements along `dims` are one place in memory, holds after each was written on its own: the last new one everywhere, or
    the sum of what was added."""
    if accumulate and x.dtype == np.bool_:
        return x | written.any(dims, keepdims=True)
    if accumulate:
        change = where(written == x, 0, written - x)  # which of equal infinities would be NaN
        return x + change.sum(dims, keepdims=True)
    for dim in dims:
        change = (written != x) & ((written == written) | (x == x))
        last = x.shape[dim] - 1 - jnp.argmax(jnp.flip(change, dim), dim, keepdims=True)
        written = broadcast_to(jnp.take_along_axis(written, last, dim), x.shape)
    return written


def _refuse_set(grad: Any) -> Any:
    raise RuntimeError("derivative for set_ is not implemented")


@op("set_memory(Tensor self, Tensor source)", method=False, toplevel=False, out=False, node=NOT_IMPLEMENTED,
    grads={"self": _refuse_set, "source": _refuse_set})  # fmt: skip
def _set_memory_to(x: Any, source: Any) -> Any:
    """`source`: what is in the memory that a tensor took over."""
    return source


@op("behind(Tensor self, Tensor arriving, Scalar never)", method=False, toplevel=False, out=False, grads={"self": SAME},
    keeps_order=False, numpy=numpy_forms.like)  # fmt: skip
def behind(x: Any, arriving: Any, never: Any) -> Any:
    """`x`, which nothing can be computed of before `arriving` is there. `arriving` has elements; `never` is False.

    An optimization barrier says just this, but XLA's CPU compiler takes barriers away before it orders computations, and merges what stood behind
    them with what stood before. A choice by a number that is not known before the program runs stays.
    """
    x, arriving = lax.optimization_barrier((x, arriving))
    first = arriving[(0,) * arriving.ndim]
    return where(never != 0, convert(first, x.dtype), x)
