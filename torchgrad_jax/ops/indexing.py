"""Operators that read and write at places given by tensors."""

from __future__ import annotations

from typing import Any

from jax import numpy as jnp

from torchgrad_jax.ops.declare import SAME, convert, op


@op("copy(Tensor self, Tensor src)", method=False, toplevel=False, node="CopyBackwards",
    grads={"self": lambda grad: jnp.zeros_like(grad), "src": SAME})  # fmt: skip
def copy(x: Any, src: Any) -> Any:
    """`src` in the shape and dtype of self."""
    return jnp.broadcast_to(convert(src, x.dtype), x.shape)


def _key(x: Any, indices: list[Any], dims: tuple[int, ...]) -> tuple[Any, ...]:
    key: list[Any] = [slice(None)] * x.ndim
    for index, dim in zip(indices, dims, strict=True):
        key[dim] = jnp.where(index < 0, index + x.shape[dim], index)
    return tuple(key)


def _at(x: Any, indices: list[Any], dims: tuple[int, ...]) -> Any:
    return x.at[_key(x, indices, dims)]


def first_bad(x_shape: tuple[int, ...], indices: list[Any], dims: tuple[int, ...]) -> Any:
    """The check of index tensors: the pair (1, offender) where one is out of range, else zeros."""
    code = jnp.zeros(2, jnp.int64)
    for index, dim in zip(indices, dims, strict=True):
        if index.size:
            flat = index.reshape(-1).astype(jnp.int64)
            bad = (flat < -x_shape[dim]) | (flat >= x_shape[dim])
            where = jnp.argmax(bad)
            code = jnp.where(bad[where], jnp.stack([jnp.int64(1), flat[where]]), code)
    return code


def _out_of_bounds(offender: int) -> Exception:
    return IndexError(f"index {offender} is out of bounds")


def _index(x: Any, indices: list[Any], dims: tuple[int, ...]) -> Any:
    return _at(x, indices, dims).get(mode="promise_in_bounds" if all(not i.size for i in indices) else "clip")


op("index(Tensor self, Tensor[] indices, any dims)", method=False, toplevel=False, linear=("self",))(_index)


@op("index_checked(Tensor self, Tensor[] indices, any dims)", method=False, toplevel=False, node="IndexBackward0", linear=("self",), check=_out_of_bounds)
def _index_checked(x: Any, indices: list[Any], dims: tuple[int, ...]) -> Any:
    return _index(x, indices, dims), first_bad(x.shape, indices, dims)


def _index_put(x: Any, values: Any, indices: list[Any], dims: tuple[int, ...], accumulate: bool) -> Any:
    at = _at(x, indices, dims)
    return at.add(values) if accumulate else at.set(values)


op("index_put(Tensor self, Tensor values, Tensor[] indices, any dims, bool accumulate)", method=False, toplevel=False, linear=("self", "values"))(_index_put)


@op(
    "index_put_checked(Tensor self, Tensor values, Tensor[] indices, any dims, bool accumulate)", method=False, toplevel=False,
    node="IndexPutBackward0", linear=("self", "values"), check=_out_of_bounds,
)  # fmt: skip
def _index_put_checked(x: Any, values: Any, indices: list[Any], dims: tuple[int, ...], accumulate: bool) -> Any:
    return _index_put(x, values, indices, dims, accumulate), first_bad(x.shape, indices, dims)


