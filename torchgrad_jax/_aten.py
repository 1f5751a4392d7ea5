"""Operators that `torch.ops.aten` has and `torch` has not: what code about autograd calls by these names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.autograd.backward import grad
from torchgrad_jax.autograd.grad_mode import enable_grad, is_grad_enabled
from torchgrad_jax.core.duals import seen_tangent
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.core.viewing import asked_for
from torchgrad_jax.functions.creation import zeros
from torchgrad_jax.functions.gathering import call
from torchgrad_jax.functions.views import as_strided
from torchgrad_jax.memory.storage import View


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


def convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients of a convolution's input, weight and bias, given that of its result: those that `output_mask` names, None for the others."""
    operands = [input, weight]
    recorded = is_grad_enabled() and any(t.requires_grad for t in (*operands, grad_output))
    with enable_grad():
        # Of these themselves where the gradients may be differentiated; a leaf that no graph leads to where not.
        given = [t if t.requires_grad or seen_tangent(t) is not None else t.detach() for t in operands]
        leaves = [t.view_as(t) if t.requires_grad else t.requires_grad_() for t in given]
        made = call("convolution", *leaves, None, *map(tuple, (stride, padding, dilation)), transposed, tuple(output_padding), groups)
        wanted = [leaf for leaf, there in zip(leaves, output_mask, strict=False) if there]
        found = iter(grad(made, wanted, grad_output, create_graph=recorded) if wanted else ())
    grads = [next(found) if there else None for there in output_mask[:2]]
    over = [d for d in range(grad_output.dim()) if d != 1]
    return grads[0], grads[1], grad_output.sum(over) if output_mask[2] else None


functions: dict[str, Callable[..., Any]] = {
    "slice_inverse": slice_inverse,
    "_new_zeros_with_same_feature_meta": new_zeros_with_same_feature_meta,
    "convolution_backward": convolution_backward,
}
