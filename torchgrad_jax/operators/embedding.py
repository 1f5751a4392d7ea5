"""Rows of a table found by index, and classes as vectors of zeros and a one."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import dtypes, numpy_indexing, numpy_placing
from torchgrad_jax.declaration.converting import where
from torchgrad_jax.declaration.operator import op


def _rows(weight: Any, indices: Any) -> Any:
    if not indices.size or not weight.shape[0]:
        return jnp.zeros((*indices.shape, *weight.shape[1:]), weight.dtype)
    return weight.at[indices].get(mode="clip")


def _counts(indices: Any, rows: int) -> Any:
    return jnp.zeros(rows, np.int64).at[indices.reshape(-1)].add(1, mode="drop")


def _embedding_grad(grad: Any, weight_sym_sizes: tuple[int, ...], indices: Any, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    if padding_idx >= 0:
        grad = where((indices == padding_idx)[..., None], jnp.zeros((), grad.dtype), grad)
    if scale_grad_by_freq:
        grad = grad / _counts(indices, weight_sym_sizes[0])[indices][..., None].astype(grad.dtype)
    return jnp.zeros(weight_sym_sizes, grad.dtype).at[indices].add(grad, mode="drop")


def first_outside(indices: Any, low: int, high: int, ignored: Any = None) -> Any:
    """The check of indices: the pair (1, offender) where one is not in [low, high), else zeros."""
    if not indices.size:
        return jnp.zeros(2, np.int64)
    flat = indices.reshape(-1).astype(np.int64)
    bad = (flat < low) | (flat >= high)
    if ignored is not None:
        bad = bad & (flat != ignored)
    first = jnp.argmax(bad)
    return where(bad[first], jnp.stack([jnp.int64(1), flat[first]]), jnp.zeros(2, np.int64))


_SCHEMA = "(Tensor weight, Tensor indices, int padding_idx, bool scale_grad_by_freq)"


@op("embedding" + _SCHEMA, method=False, toplevel=False, real="embedding", grads={"weight": _embedding_grad},
    attributes="sparse=False weight_sym_argsize_0", numpy=numpy_indexing.embedding, numpy_vjp=numpy_indexing.embedding_vjp)  # fmt: skip
def embedding(weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    """The rows of `weight` at `indices`, which are known to be in range."""
    return _rows(weight, indices)


@op("embedding_checked" + _SCHEMA, method=False, toplevel=False, node="EmbeddingBackward0", real="embedding",
    grads={"weight": _embedding_grad}, check=lambda offender: IndexError("index out of range in self"),
    attributes="sparse=False weight_sym_argsize_0", numpy=numpy_indexing.embedding_checked,
    numpy_vjp=numpy_indexing.embedding_vjp)  # fmt: skip
def embedding_checked(weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    """`embedding` for indices that may be out of range."""
    return _rows(weight, indices), first_outside(indices, 0, weight.shape[0])


@op("_one_hot(Tensor self, int num_classes)", method=False, toplevel=False, differentiable=False, numpy=numpy_placing.one_hot)
def one_hot(x: Any, num_classes: int) -> Any:
    """A new last dimension that is 1 at the class and 0 elsewhere."""
    classes = lax.iota(np.int64, num_classes)
    return (lax.expand_dims(x, (x.ndim,)) == classes).astype(np.int64)


def _bag_rows_grad(grad: Any, rows: Any, bags: Any, weights: Any, count: int, mode: str) -> Any:
    return jax.vjp(lambda r: _bag(r, bags, weights, count, mode), rows)[1](grad)[0]


def _bag_grad(
    grad: Any, weight_sym_sizes: Any, indices: Any, bags: Any, weights: Any, count: int, mode: str, padding_idx: int, scale_grad_by_freq: bool
) -> Any:  # fmt: skip
    """Of sums and means, in which it makes no difference what the rows are."""
    any_rows = jnp.zeros((*indices.shape, weight_sym_sizes[1]), grad.dtype)
    rows = _bag_rows_grad(grad, any_rows, bags, weights, count, mode)
    return _embedding_grad(rows, weight_sym_sizes, indices, padding_idx, scale_grad_by_freq)


def _largest_grad(
    grad: Any, weight: Any, indices: Any, bags: Any, weights: Any, count: int, mode: str, padding_idx: int, scale_grad_by_freq: bool
) -> Any:  # fmt: skip
    rows = _bag_rows_grad(grad, _rows(weight, indices), bags, weights, count, mode)
    return _embedding_grad(rows, weight.shape, indices, padding_idx, scale_grad_by_freq)


def _bag_weights_grad(grad: Any, weight: Any, indices: Any, bags: Any, weights: Any, count: int, mode: str) -> Any:
    return jax.vjp(lambda w: _bag(_rows(weight, indices), bags, w, count, mode), weights)[1](grad)[0]


_BAG_SCHEMA = "(Tensor weight, Tensor indices, Tensor bags, Tensor? weights, int count, str mode, int padding_idx, bool scale_grad_by_freq)"


def _bag_types(weight: Any, indices: Any, bags: Any, weights: Any, **_: Any) -> None:
    found = dtypes.of(weight.dtype)
    if not found.is_floating_point:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have one of the following scalar types: Half, BFloat16, Float, Double; but got "
            f"{found.tensor_type} instead (while checking arguments for embedding_bag)"
        )
    if weights is not None and weights.dtype != weight.dtype:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 'per_sample_weights'; but type "
            f"{found.tensor_type} does not equal {dtypes.of(weights.dtype).tensor_type} (while checking arguments for embedding_bag)"
        )


_BAG: dict[str, Any] = dict(validate=_bag_types, method=False, toplevel=False, node="EmbeddingBagBackward0")
_BAGS: dict[str, dict[str, Any]] = {
    "embedding_bag": dict(grads={"weight": _bag_grad, "weights": _bag_weights_grad}, numpy_grads=numpy_placing.embedding_bag_grads, **_BAG),
    # Of the largest elements PyTorch saves which rows they are of.
    "embedding_bag_max": dict(grads={"weight": _largest_grad, "weights": _bag_weights_grad}, copies=("weight",), **_BAG),
}
for _name, _options in _BAGS.items():

    @op(_name + _BAG_SCHEMA, numpy=numpy_placing.embedding_bag, **_options)
    def embedding_bag(
        weight: Any, indices: Any, bags: Any, weights: Any, count: int, mode: str, padding_idx: int, scale_grad_by_freq: bool
    ) -> Any:  # fmt: skip
        """The rows of `weight` at `indices`, which are known to be in range, reduced by bag."""
        return _bag(_rows(weight, indices), bags, weights, count, mode)

    @op(f"{_name}_checked{_BAG_SCHEMA}", check=lambda offender: IndexError("index out of range in self"),
        numpy=numpy_placing.embedding_bag_checked, **_options)  # fmt: skip
    def embedding_bag_checked(
        weight: Any, indices: Any, bags: Any, weights: Any, count: int, mode: str, padding_idx: int, scale_grad_by_freq: bool
    ) -> Any:  # fmt: skip
        """`embedding_bag` for indices that may be out of range."""
        return _bag(_rows(weight, indices), bags, weights, count, mode), first_outside(indices, 0, weight.shape[0])


def _bag(rows: Any, bags: Any, weights: Any, count: int, mode: str) -> Any:
    """Rows (n, dim) reduced by bag: their sum, mean or largest elements; bag -1 belongs to none. An empty bag is 0."""
    at = where(bags < 0, count, bags)
    if weights is not None:
        rows = rows * weights[:, None]
    if mode == "max":
        low = jnp.full((count, rows.shape[1]), -jnp.inf, rows.dtype)
        largest = low.at[at].max(rows, mode="drop")
        return where(_counts(at, count)[:, None] > 0, largest, jnp.zeros((), rows.dtype))
    sums = jnp.zeros((count, rows.shape[1]), rows.dtype).at[at].add(rows, mode="drop")
    if mode == "mean":
        sums = sums / jnp.maximum(_counts(at, count), 1)[:, None].astype(rows.dtype)
    return sums
