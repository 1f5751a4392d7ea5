"""Operators that arrange elements: copies, pieces, joining, repeating, mirroring."""

from __future__ import annotations

from typing import Any

from jax import lax
from jax import numpy as jnp

from torchgrad_jax.ops.declare import SAME, op


@op("clone(Tensor self)", method=False, toplevel=False, grads={"self": SAME})
def clone(x: Any) -> Any:
    """A copy."""
    return x


@op("_unsafe_view(Tensor self, int[] size)", method=False, toplevel=False, linear=True, node="UnsafeViewBackward0")
def unsafe_view(x: Any, size: tuple[int, ...]) -> Any:
    """The elements in another shape, of a copy that nobody else sees."""
    return lax.reshape(x, size)


@op("unbind(Tensor self, int dim, any parts)", method=False, toplevel=False, linear=True)
def unbind(x: Any, dim: int, parts: tuple[tuple[int, int], ...]) -> Any:
    """The slices along `dim`."""
    return tuple(lax.index_in_dim(x, start, dim, keepdims=False) for start, _ in parts)


for _name in ("split", "split_with_sizes"):

    @op(f"{_name}(Tensor self, int dim, any parts)", method=False, toplevel=False, linear=True)
    def _split(x: Any, dim: int, parts: tuple[tuple[int, int], ...]) -> Any:
        """Pieces of `dim`."""
        return tuple(lax.slice_in_dim(x, start, start + length, axis=dim) for start, length in parts)


def _stack_shapes(tensors: list[Any], dim: int) -> None:
    for i, a in enumerate(tensors):
        if a.shape != tensors[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 and {list(a.shape)} at entry {i}"
            )


@op("_stack(Tensor[] tensors, int dim)", method=False, toplevel=False, linear=True, node="StackBackward0", validate=_stack_shapes)
def stack(tensors: list[Any], dim: int) -> Any:
    """The tensors along a new dimension."""
    dtype = jnp.result_type(*tensors)
    return jnp.stack([t.astype(dtype) for t in tensors], dim)
