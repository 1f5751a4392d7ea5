"""Operators that `torch.ops.aten` has and `torch` has not: what code about autograd calls by these names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import asked_for
from torchgrad_jax.functions.creation import zeros
from torchgrad_jax.functions.views import as_strided
from torchgrad_jax.memory.storage import View
from torchgrad_jax.nn.convolution_backward import convolution_backward


def slice_inverse(self: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """The memory of `self`, a slice, as a tensor that lies in it as `src`, of which it may be a slice, lies in its own."""
    made = as_strided(self, tuple(src.shape), src.stride(), src.storage_offset())
    if View.replayed_somewhere:
        bounds = (start, end, step)
        asked_for(
            made,
            self,
            lambda t, given: slice_inverse(t, given.tensor(src), dim, *[None if n is None else given(n) for n in bounds]),  # type: ignore[arg-type]
        )
    return made


def new_zeros_with_same_feature_meta(self: Tensor, other: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    """Zeros for a tangent of `other` for each of the first `self_num_batch_dims` dimensions of `self`: each lies in its memory as `other` does."""
    batch = tuple(self.shape[:self_num_batch_dims])
    size = other.untyped_storage().nbytes() // other.element_size()
    memory = zeros((math.prod(batch) * size,), dtype=other.dtype, device=other.device)
    strides = [size * math.prod(batch[i + 1 :]) for i in range(len(batch))]
    return as_strided(memory, (*batch, *other.shape), (*strides, *other.stride()), other.storage_offset())


functions: dict[str, Callable[..., Any]] = {
    "slice_inverse": slice_inverse,
    "_new_zeros_with_same_feature_meta": new_zeros_with_same_feature_meta,
    "convolution_backward": convolution_backward,
}
