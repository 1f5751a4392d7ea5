"""The gradients of a convolution by themselves, of which it need not be computed."""

from __future__ import annotations

from collections.abc import Sequence

from torchgrad_jax.autograd.backward import grad
from torchgrad_jax.autograd.grad_mode import enable_grad, is_grad_enabled
from torchgrad_jax.core.duals import seen_tangent
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.gathering import call


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
