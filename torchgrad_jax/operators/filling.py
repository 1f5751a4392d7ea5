"""Operators for the sake of memory: filled with a number, with what else is to be there, with what is left where several elements are one place; and
not needed before its time."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import numpy_forms
from torchgrad_jax.declaration.converting import broadcast_to, convert, zeros_like_grad
from torchgrad_jax.declaration.operator import NOT_IMPLEMENTED, SAME, op


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


@op("written_to_expanded(Tensor self, Tensor written, int[] dims, bool accumulate)", method=False, toplevel=False, out=False)
def _written_to_expanded(x: Any, written: Any, dims: tuple[int, ...], accumulate: bool) -> Any:
    """What `x`, whose elements along `dims` are one place in memory, holds after each was written on its own: the last new one everywhere, or
    the sum of what was added."""
    if accumulate and x.dtype == np.bool_:
        return x | written.any(dims, keepdims=True)
    if accumulate:
        change = jnp.where(written == x, 0, written - x)  # which of equal infinities would be NaN
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
    return jnp.where(never != 0, convert(first, x.dtype), x)
