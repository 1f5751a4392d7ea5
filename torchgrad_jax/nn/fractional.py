"""`torch.nn.functional`: pooling over windows whose places chance decides (Graham 2014)."""

from __future__ import annotations

import operator
from typing import Any

from torchgrad_jax.calling.expecting import expect_tensor
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions.random_factories import rand
from torchgrad_jax.operators import pooling as _operators  # noqa: F401 - declares the operators
from torchgrad_jax.operators import registry

__all__ = ["fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d", "fractional_max_pool3d_with_indices"]

_AXES = ("time", "height", "width")
_CHECKED = {2: (0, 1), 3: (0, 2, 1)}  # PyTorch's order
_TUPLES = {2: "Ints", 3: "three Ints"}


def fractional_max_pool2d(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """The largest element of each of `output_size` windows of (N, C, H, W) or (C, H, W), which numbers of [0, 1) place; with its flat index if asked.

    `output_ratio`: the output size over that of the input, instead. `_random_samples`: (N, C, 2); by default drawn.
    ValueError where no size is given, RuntimeError where shapes, sizes or dtypes do not fit.
    """
    return _pooled(2, input, kernel_size, output_size, output_ratio, _random_samples, return_indices)


def fractional_max_pool2d_with_indices(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`fractional_max_pool2d` with the indices."""
    return _pooled(2, input, kernel_size, output_size, output_ratio, _random_samples, True)


def fractional_max_pool3d(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """`fractional_max_pool2d` for (N, C, D, H, W) or (C, D, H, W), with `_random_samples` (N, C, 3)."""
    return _pooled(3, input, kernel_size, output_size, output_ratio, _random_samples, return_indices)


def fractional_max_pool3d_with_indices(
    input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`fractional_max_pool3d` with the indices."""
    return _pooled(3, input, kernel_size, output_size, output_ratio, _random_samples, True)


def _pooled(count: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Tensor | None, indices: bool) -> Any:
    name = f"fractional_max_pool{count}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if output_size is None:
        output_size = _by_ratio(name, input, output_ratio, count)
    if samples is None:
        batch = 1 if input.dim() == count + 1 else input.size(0)
        samples = rand(batch, input.size(-count - 1), count, dtype=input.dtype, device=input.device)
    expect_tensor(name, input)
    expect_tensor(name, samples, "random_samples", 4)
    sizes = _numbers(name, "output_size", output_size, count)
    kernel = _numbers(name, "kernel_size", kernel_size, count)
    _check_shape(name, input._aval.shape, kernel, sizes)
    _check_samples(samples._aval.shape, (1, *input._aval.shape)[-count - 2 : -count], count)
    made = apply(registry[f"_{name}"].bind((ARRAY, ARRAY, Static(kernel), Static(sizes))), (input, samples))
    return made if indices else made[0]


def _by_ratio(name: str, input: Tensor, output_ratio: Any, count: int) -> list[int]:
    if len(output_ratio) > count:
        raise ValueError(f"{name} requires output_ratio to either be a single Int or tuple of Ints.")
    return [int(input.size(i - count) * output_ratio[i]) for i in range(count)]


def _numbers(name: str, label: str, value: Any, count: int) -> tuple[int, ...]:
    found = (operator.index(value),) * count if hasattr(value, "__index__") else tuple(operator.index(v) for v in value)
    if len(found) != count:
        raise RuntimeError(f"{name}: {label} must either be a single Int or tuple of {_TUPLES[count]}")
    return found


def _check_shape(name: str, shape: tuple[int, ...], kernel: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    count = len(kernel)
    name += "_out()" if count == 3 else "()"
    if len(shape) not in (count + 1, count + 2):
        raise RuntimeError(f"{name}: Expected {count + 1}D or {count + 2}D tensor, but got: {list(shape)}")
    for i in range(len(shape) - count - 1, len(shape)):
        if not shape[i]:
            raise RuntimeError(
                f"{name}: Expected input to have non-zero size for non-batch dimensions, but got{list(shape)} with dimension {i} being empty."
            )
    for i in _CHECKED[count]:
        if sizes[i] + kernel[i] - 1 > shape[i - count] - (count == 3):  # PyTorch wants one more of volumes
            axis = _AXES[i - count]
            raise RuntimeError(f"{name}: pool {axis} {kernel[i]} too large relative to input {axis} {shape[i - count]}")
    if min(sizes) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(sizes)}: {[*shape[:-count], *sizes]}")
    if min(kernel) < 1:
        raise RuntimeError(f"torchgrad_jax: {name} needs kernel sizes of at least 1, not {kernel}")


def _check_samples(shape: tuple[int, ...], lead: tuple[int, ...], count: int) -> None:
    if len(shape) != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {len(shape)}")
    if shape[0] < lead[0]:
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if shape[1] != lead[1]:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if shape[2] != count:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {count}; got {shape[2]}.")
