"""`torch.nn.functional`: what pooling chose, put back where it was."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import expect_tensor
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions.views import squeeze, unsqueeze
from torchgrad_jax.operators import pooling as _operators  # noqa: F401 - declares the operators
from torchgrad_jax.operators import registry

__all__ = ["max_unpool1d", "max_unpool2d", "max_unpool3d"]

Ints = tuple[int, ...]
_ELEMENTS = {2: "two elements (height, width)", 3: "three elements (depth, height, width)"}


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:  # fmt: skip
    """(N, C, L) or (C, L) that `max_pool1d` gave with `indices`, put back into zeros of the size that was pooled, or of `output_size` where several
    lead to the same.

    ValueError for an output size that does not; RuntimeError where shapes or dtypes do not fit, or an index lies outside.
    """
    _, _, size = _output_size(1, input, kernel_size, stride, padding, output_size)
    expect_tensor("max_unpool2d", indices, "indices", 2)
    return squeeze(_unpool(2, unsqueeze(input, -1), unsqueeze(indices, -1), (*size, 1)), -1)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:  # fmt: skip
    """`max_unpool1d` for (N, C, H, W) or (C, H, W)."""
    _, _, size = _output_size(2, input, kernel_size, stride, padding, output_size)
    return _unpool(2, input, indices, size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:  # fmt: skip
    """`max_unpool1d` for (N, C, D, H, W) or (C, D, H, W)."""
    strides, _, size = _output_size(3, input, kernel_size, stride, padding, output_size)
    return _unpool(3, input, indices, size, strides)


def _each(value: Any, count: int) -> Ints:
    return (operator.index(value),) * count if hasattr(value, "__index__") else tuple(operator.index(v) for v in value)


def _output_size(count: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any) -> tuple[Ints, Ints, Ints]:
    """The strides, the padding and the size of the result. ValueError for one that the pooling could not have started from."""
    kernel, pads = _each(kernel_size, count), _each(padding, count)
    strides = kernel if stride is None else _each(stride, count)
    given = input.size()
    default = tuple((given[i - len(kernel)] - 1) * strides[i] + kernel[i] - 2 * pads[i] for i in range(len(kernel)))
    if output_size is None:
        return strides, pads, default
    wanted = output_size[2:] if len(output_size) == len(kernel) + 2 else output_size
    if len(wanted) != len(kernel):
        raise ValueError(
            f"output_size should be a sequence containing {len(kernel)} or {len(kernel) + 2} elements, but it has a length of '{len(wanted)}'"
        )
    for i, (n, d, s) in enumerate(zip(wanted, default, strides, strict=True)):
        if not d - s < n < d + s:
            raise ValueError(f'invalid output_size "{wanted}" (dim {i} must be between {d - s} and {d + s})')
    return strides, pads, tuple(operator.index(n) for n in wanted)


def _unpool(count: int, input: Tensor, indices: Tensor, size: Ints, stride: Ints | None = None) -> Tensor:
    name = f"max_unpool{count}d"
    expect_tensor(name, input)
    expect_tensor(name, indices, "indices", 2)
    if indices._aval.dtype != np.int64:
        found = f" but got: {dtypes.of(indices._aval.dtype).title}" if count == 2 else ""
        raise RuntimeError(f"elements in indices should be type int64{found}")
    _check_shapes(count, input._aval.shape, indices._aval.shape, size)
    if stride is not None and min(stride) < 1:
        raise RuntimeError(f"strides should be greater than zero, but got stride: {list(stride)}")
    return apply(registry[f"_{name}"].bind((ARRAY, ARRAY, Static(size))), (input, indices))


def _check_shapes(count: int, shape: Ints, indices: Ints, size: Ints) -> None:
    if len(size) != count:
        raise RuntimeError(f"There should be exactly {_ELEMENTS[count]} in output_size, but got {len(size)} elements.")
    if len(shape) not in (count + 1, count + 2):
        raise RuntimeError(
            f"Input to max_unpooling{count}d should be a {count + 1}d or {count + 2}d Tensor, but got a tensor with {len(shape)} dimensions."
        )
    if shape != indices:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(shape)}) but got indices tensor with shape: {list(indices)}"
        )
    for i in range(len(shape) - count - 1, len(shape)):
        if not shape[i]:
            raise RuntimeError(
                f"max_unpooling{count}d_forward_out_cpu(): Expected input to have non-zero size for non-batch dimensions, but got {list(shape)} "
                f"with dimension {i} being empty."
            )
