"""Reductions: sums, means, extremes, norms and what is found along a dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.ops import dtypes
from torchgrad_jax.ops.declare import broadcast_to, convert, op


def wrap_dims(dim: tuple[int, ...] | int | None, ndim: int) -> tuple[int, ...]:
    """The reduced dimensions counted from the front; all of them for None or (). IndexError, RuntimeError as PyTorch."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    size = max(ndim, 1)
    found = []
    for d in (dim,) if isinstance(dim, int) else dim:
        if not -size <= d < size:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {d})")
        d %= size
        if d in found:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        found.append(d)
    return tuple(found) if ndim else ()


def keep(x: Any, dims: tuple[int, ...], keepdim: bool) -> Any:
    """Put the reduced dimensions back with size 1."""
    return lax.expand_dims(x, sorted(dims)) if keepdim and dims else x


def spread(grad: Any, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Any:
    """A reduced result's gradient, expanded over the shape that was reduced."""
    dims = wrap_dims(dim, len(shape))
    return broadcast_to(grad if keepdim else lax.expand_dims(grad, sorted(dims)), shape)


@op("sum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)", linear=True)
def sum_(x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    """The sum over `dim` (int or tuple; all where None). Integers and booleans are added as int64."""
    x = convert(x, dtype or (np.dtype(np.int64) if dtypes.category(x.dtype) <= dtypes.INT else np.dtype(x.dtype)))
    dims = wrap_dims(dim, x.ndim)
    return keep(lax.reduce_sum(x, dims), dims, keepdim)


@op("mean(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)", linear=True)
def mean(x: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    """The mean over `dim` (int or tuple; all where None)."""
    if dtype is None and dtypes.category(x.dtype) <= dtypes.INT:
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {dtypes.of(np.dtype(x.dtype)).title}"
        )
    x = convert(x, dtype or np.dtype(x.dtype))
    dims = wrap_dims(dim, x.ndim)
    count = int(np.prod([x.shape[d] for d in dims], dtype=np.int64))
    return keep(lax.reduce_sum(x, dims) / jnp.asarray(count, x.dtype), dims, keepdim)
