"""Products with a sparse matrix, given as the places of its elements and their values."""

from __future__ import annotations

from typing import Any

from jax import numpy as jnp

from torchgrad_jax.declaration.operator import op


def _product(values: Any, rows: Any, cols: Any, dense: Any, size: int) -> Any:
    found = jnp.zeros((size, dense.shape[1]), dense.dtype)
    if not values.size or not dense.size:
        return found
    taken = dense.at[cols].get(mode="promise_in_bounds")
    return found.at[rows].add(values[:, None] * taken, mode="drop")


def _values_grad(grad: Any, rows: Any, cols: Any, dense: Any, size: int) -> Any:
    if not rows.size or not grad.size:
        return jnp.zeros(rows.shape, grad.dtype)
    return (grad.at[rows].get(mode="promise_in_bounds") * dense.conj().at[cols].get(mode="promise_in_bounds")).sum(1)


def _dense_grad(grad: Any, values: Any, rows: Any, cols: Any, dense_sym_sizes: tuple[int, ...], size: int) -> Any:
    return _product(values.conj(), cols, rows, grad, dense_sym_sizes[0])


@op("_sparse_product(Tensor values, Tensor rows, Tensor cols, Tensor dense, int size)", method=False, toplevel=False, node="SparseAddmmBackward0",
    grads={"values": _values_grad, "dense": _dense_grad})  # fmt: skip
def sparse_product(values: Any, rows: Any, cols: Any, dense: Any, size: int) -> Any:
    """The product of a sparse matrix of `size` rows, which has `values` at `rows` and `cols`, all in range, and a dense one. What is at one place
    twice is added."""
    return _product(values, rows, cols, dense, size)
