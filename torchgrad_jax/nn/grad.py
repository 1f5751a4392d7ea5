"""`torch.nn.grad`: the gradients of convolutions, each by itself, which may be differentiated in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax._aten import convolution_backward
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.functions.creation import zeros

__all__ = [f"conv{n}d_{of}" for n in (1, 2, 3) for of in ("input", "weight")]

_Each = int | Sequence[int]


def _each(value: _Each, dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else tuple(value)


def _functions(dims: int) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    def gradients(
        grad_output: Tensor, input: Tensor, weight: Tensor, stride: _Each, padding: _Each, dilation: _Each, groups: int, wanted: tuple[bool, bool]
    ) -> Any:
        stride, padding, dilation = _each(stride, dims), _each(padding, dims), _each(dilation, dims)
        return convolution_backward(grad_output, input, weight, None, stride, padding, dilation, False, [0] * dims, groups, (*wanted, False))

    def of_input(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: _Each = 1, padding: _Each = 0, dilation: _Each = 1, groups: int = 1
    ) -> Tensor:
        input = zeros(input_size, dtype=grad_output.dtype, device=grad_output.device)  # its gradient does not depend on it
        return gradients(grad_output, input, weight, stride, padding, dilation, groups, (True, False))[0]

    def of_weight(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: _Each = 1, padding: _Each = 0, dilation: _Each = 1, groups: int = 1
    ) -> Tensor:
        weight = zeros(weight_size, dtype=grad_output.dtype, device=grad_output.device)
        return gradients(grad_output, input, weight, stride, padding, dilation, groups, (False, True))[1]

    for function, of in ((of_input, "input"), (of_weight, "weight")):
        size = f"`{of}_size`"
        function.__name__ = function.__qualname__ = f"conv{dims}d_{of}"
        function.__doc__ = (
            f"The gradient of `conv{dims}d`'s {of}, of the size {size}, given that of its result. stride, padding, dilation: of all dimensions, or "
            "for each. RuntimeError for sizes that do not fit."
        )
    return of_input, of_weight


conv1d_input, conv1d_weight = _functions(1)
conv2d_input, conv2d_weight = _functions(2)
conv3d_input, conv3d_weight = _functions(3)
