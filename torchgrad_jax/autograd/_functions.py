"""`torch.autograd._functions`: operations that were once methods."""

from __future__ import annotations

from typing import Any

from torchgrad_jax.autograd.function import Function
from torchgrad_jax.core.tensor import Tensor

__all__ = ["Resize"]


class Resize(Function):
    """``Resize.apply(tensor, sizes)``: the elements in another shape. RuntimeError where their number differs."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """See Function."""
        ctx.input_size = tensor.size()
        count = 1
        for n in sizes:
            count *= n
        if count != tensor.numel():
            given = "x".join(map(str, tensor.size()))
            raise RuntimeError(
                f"requested resize to {'x'.join(map(str, sizes))} ({count} elements in total), but the given tensor has a size of {given} "
                f"({tensor.numel()} elements). autograd's resize can only change the shape of a given tensor, while preserving the number of "
                "elements. "
            )
        return tensor.contiguous().view(*sizes)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        """See Function."""
        return grad_output.contiguous().view(ctx.input_size), None
