"""Pooling of torch.nn.functional."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

import numpy as np

from torchgrad_jax.calling.expecting import not_a_tensor
from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration import dtypes
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions.views import squeeze, unsqueeze
from torchgrad_jax.operators import pooling as _operators
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.recorder import per_thread

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices", "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool1d_with_indices", "max_pool2d",
    "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices",
]  # fmt: skip

Ints = tuple[int, ...]
_WORDS = {2: "two", 3: "three"}


def _numbers(name: str, label: str, value: Any, count: int) -> Ints:
    if type(value) is int:
        return (value,) * count
    found = (operator.index(value),) if hasattr(value, "__index__") else tuple(operator.index(v) for v in value)
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise RuntimeError(f"{name}: {label} must either be a single int, or a tuple of {_WORDS.get(count, 'one')} ints")
    return found


def _steps(name: str, stride: Any, kernel: Ints) -> Ints:
    """The strides; those of the kernel where none are given."""
    if stride is None or (isinstance(stride, (list, tuple)) and not stride):
        return kernel
    return _numbers(name, "stride", stride, len(kernel))


def _check_tensor(name: str, input: Any) -> None:
    if not isinstance(input, Tensor):
        raise not_a_tensor(name, input)


@lru_cache(4096)
def _check_windows(shape: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> None:
    """PyTorch's errors for windows that do not fit, in its order."""
    count = len(kernel)
    if count == 3 and len(shape) not in (4, 5):
        _check_input(count, shape)
    if 0 in stride:
        raise RuntimeError("stride should not be zero")
    _check_positive("kernel size", "k", kernel)
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > (d * (k - 1) + 1) // 2:
            raise RuntimeError(f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation={d}")
    _check_positive("stride", "d", stride)
    _check_positive("dilation", "dilation", dilation)
    _check_input(count, shape)
    sizes, channels = shape[-count:], shape[-count - 1]
    out = tuple(_operators.pooled_size(*a, ceil_mode) for a in zip(sizes, kernel, stride, padding, dilation, strict=True))
    if min(out) < 1:
        given, made = ("x".join(map(str, (channels, *s))) for s in (sizes, out))
        raise RuntimeError(f"Given input size: ({given}). Calculated output size: ({made}). Output size is too small")


def _check_positive(what: str, label: str, values: Ints) -> None:
    if any(v <= 0 for v in values):
        raise RuntimeError(f"{what} should be greater than zero, but got {_labelled(label, values)}")


def _labelled(label: str, values: Ints) -> str:
    return " ".join(f"{label}{axis}: {v}" for axis, v in zip("TDHW"[-len(values) :] if len(values) < 3 else "THW", values, strict=True))


def _check_input(count: int, shape: Ints) -> None:
    if len(shape) not in (count + 1, count + 2):
        raise RuntimeError(f"non-empty {count + 1}D or {count + 2}D (batch mode) tensor expected for input")
    if 0 in shape[-count - 1 :]:
        raise RuntimeError(
            f"Expected {count + 1}D or {count + 2}D (batch mode) tensor with optional 0 dim batch size for input, but got:{list(shape)}"
        )


# ---------------------------------------------------------------------- largest elements


def _max_pool(
    name: str, count: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: bool
) -> Any:
    _check_tensor(name, input)
    kernel = _numbers(name, "kernel_size", kernel_size, count)
    strides = _steps(name, stride, kernel)
    pads, dilated = _numbers(name, "padding", padding, count), _numbers(name, "dilation", dilation, count)
    shape = input._aval.shape
    _check_windows(shape, kernel, strides, pads, dilated, ceil_mode)
    return _run_max_pool(count, input, kernel, strides, pads, dilated, ceil_mode, indices)


def _run_max_pool(count: int, input: Tensor, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool, indices: bool) -> Any:
    name = f"_max_pool{count}d_with_indices" if indices else f"_max_pool{count}d"
    return apply(_max_pool_of(name, bool(ceil_mode), kernel, stride, padding, dilation), (input,))


@lru_cache(1024)
def _max_pool_of(name: str, ceil_mode: bool, *sizes: Ints) -> Any:
    return registry[name].bind((ARRAY, *map(Static, sizes), Static(ceil_mode)))


def _check_1d_input(input: Tensor, indices: bool) -> None:
    shape = input._aval.shape
    if indices:
        _check_2_to_3(input, "max_pool1d")
    elif len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise RuntimeError(f"max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:{list(shape)}")


def _single(label: str, value: Any, indices: bool) -> int:
    found = (operator.index(value),) if hasattr(value, "__index__") else tuple(operator.index(v) for v in value)
    if len(found) != 1 and indices:
        raise RuntimeError(f"max_pool1d() argument '{label}' should contain one int (got {len(found)})")
    if len(found) != 1:
        ints = "an int, list of ints or tuple" if label == "kernel_size" else "an int, list of ints, or tuple"
        raise RuntimeError(f"max_pool1d() {label} must be {ints} of ints of size 1 but got size {len(found)}")
    return found[0]


def _check_1d(length: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> None:
    for label, value in (("kernel_size", kernel), ("stride", stride)):
        if value <= 0:
            raise RuntimeError(f"max_pool1d() {label} must be greater than zero, but got {value}")
    if padding < 0:
        raise RuntimeError(f"max_pool1d() padding must be non-negative, but got {padding}")
    if padding > kernel // 2:
        raise RuntimeError(f"max_pool1d() padding should be at most half of kernel size, but got padding={padding} and kernel_size={kernel}")
    if dilation <= 0:
        raise RuntimeError(f"max_pool1d() dilation must be greater than zero, but got {dilation}")
    size = _operators.pooled_size(length, kernel, stride, padding, dilation, ceil_mode)
    if size <= 0:
        raise RuntimeError(f"max_pool1d() Invalid computed output size: {size}")


def _max_pool1(input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: bool) -> Any:
    _check_tensor("max_pool1d", input)
    _check_1d_input(input, indices)
    kernel = _single("kernel_size", kernel_size, indices)
    step = kernel if stride is None or (isinstance(stride, (list, tuple)) and not stride) else _single("stride", stride, indices)
    pad, dilated = _single("padding", padding, indices), _single("dilation", dilation, indices)
    wide = unsqueeze(input, -2)
    sizes = (1, kernel), (1, step), (0, pad), (1, dilated)
    if indices:
        _check_windows(wide._aval.shape, *sizes, ceil_mode)
    else:
        _check_1d(input._aval.shape[-1], kernel, step, pad, dilated, ceil_mode)
    # What keeps the indices, for the caller or for backward, is another kernel.
    if not indices and dtypes.category(input._aval.dtype) != dtypes.FLOAT and not (input._rg and per_thread.recorder.grad_enabled):
        raise NotImplementedError(f"\"max_pool1d_impl\" not implemented for '{dtypes.of(input._aval.dtype).title}'")
    out = _run_max_pool(2, wide, *sizes, ceil_mode, indices)
    return tuple(squeeze(o, -2) for o in out) if indices else squeeze(out, -2)


@public("torch")
def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False
) -> Any:
    """The largest element of each window of (N, C, L) or (C, L); with its index if asked. RuntimeError for windows that do not fit."""
    return _max_pool1(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@public("torch")
def max_pool1d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False
) -> Any:
    """`max_pool1d` with the indices."""
    return _max_pool1(input, kernel_size, stride, padding, dilation, ceil_mode, True)


@public("torch")
def max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False
) -> Any:
    """The largest element of each window of (N, C, H, W) or (C, H, W); with its flat index if asked. RuntimeError for windows that do not fit."""
    return _max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False
) -> Any:
    """`max_pool2d` with the indices."""
    return _max_pool("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, True)


@public("torch")
def max_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False
) -> Any:
    """`max_pool2d` for (N, C, D, H, W) or (C, D, H, W)."""
    return _max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False
) -> Any:
    """`max_pool3d` with the indices."""
    return _max_pool("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, True)


# ---------------------------------------------------------------------- means


def _avg_pool(
    count: int, input: Tensor, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, count_include_pad: bool, divisor: int | None
) -> Tensor:
    shape = input._aval.shape
    if input._aval.ndim < count:
        if count == 3:
            _check_input(count, shape)
        raise IndexError(f"Dimension out of range (expected to be in range of [{-len(shape)}, {len(shape) - 1}], but got {-count - 1})")
    if divisor == 0:
        raise RuntimeError("divisor must be not zero")
    _check_windows(shape, kernel, stride, padding, (1,) * count, ceil_mode)
    bound = registry[f"_avg_pool{count}d"].bind(
        (ARRAY, Static(kernel), Static(stride), Static(padding), Static(bool(ceil_mode)), Static(bool(count_include_pad)), Static(divisor))
    )
    return apply(bound, (input,))


@public("torch")
def avg_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True
) -> Tensor:
    """The mean of each window of (N, C, L) or (C, L). RuntimeError for windows that do not fit."""
    _check_tensor("avg_pool1d", input)
    _check_2_to_3(input, "avg_pool1d")
    kernel = _numbers("avg_pool1d", "kernel_size", kernel_size, 1)
    strides = _steps("avg_pool1d", stride, kernel)
    pads = _numbers("avg_pool1d", "padding", padding, 1)
    out = _avg_pool(2, unsqueeze(input, -2), (1, *kernel), (1, *strides), (0, *pads), ceil_mode, count_include_pad, None)
    return squeeze(out, -2)


def _check_2_to_3(input: Tensor, name: str) -> None:
    if input._aval.ndim not in (2, 3):
        raise RuntimeError(
            f"Expected 2 to 3 dimensions, but got {input._aval.ndim}-dimensional tensor for argument #1 'self' (while checking arguments for {name})"
        )


def _avg_pool_nd(name: str, count: int, input: Tensor, kernel_size: Any, stride: Any, padding: Any, *rest: Any) -> Tensor:
    _check_tensor(name, input)
    kernel = _numbers(name, "kernel_size", kernel_size, count)
    strides = _steps(name, stride, kernel)
    if input._aval.ndim == count:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {-count - 1})")
    return _avg_pool(count, input, kernel, strides, _numbers(name, "padding", padding, count), *rest)


def avg_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None, *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of (N, C, H, W) or (C, H, W). RuntimeError for windows that do not fit."""
    made = _avg_pool_nd("avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return with_out("avg_pool2d", out, made)


def avg_pool3d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None, *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`avg_pool2d` for (N, C, D, H, W) or (C, D, H, W)."""
    made = _avg_pool_nd("avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return with_out("avg_pool3d", out, made)


def _lp_pool(count: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    """(sum of x ** p) ** (1 / p) over windows, from the mean as PyTorch makes it: sign(m) * relu(|m|) * size."""
    pool = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}[count]
    size = int(np.prod(_numbers(f"lp_pool{count}d", "kernel_size", kernel_size, count)))
    mean = pool(input**norm_type, kernel_size, stride, 0, ceil_mode)
    return ((mean.sign() * mean.abs().relu()) * size) ** (1.0 / norm_type)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """The p-norm of each window."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """The p-norm of each window."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """The p-norm of each window."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


# ---------------------------------------------------------------------- pools of a given output size


def _check_given_sizes(output_size: Any, input: Tensor) -> None:
    """ValueError where there are as many sizes as dimensions; TypeError for none."""
    if output_size is None:
        raise TypeError("object of type 'NoneType' has no len()")
    if not hasattr(output_size, "__index__") and input._aval.ndim <= len(output_size):
        raise ValueError(f"Input dimension should be at least {len(output_size) + 1}")


def _output_size(name: str, count: int, output_size: Any, spatial: Ints) -> Ints:
    """The sizes asked for; None keeps one. RuntimeError for a wrong number of them or negative ones."""
    found = (output_size,) * count if output_size is None or hasattr(output_size, "__index__") else tuple(output_size)
    if len(found) != count:
        raise RuntimeError(f"{name}: output_size must be {count}")
    if len(spatial) != count:
        raise RuntimeError(f"{name}(): Expected {count + 1}D or {count + 2}D tensor, but got {list(spatial)}")
    sizes = tuple(n if o is None else operator.index(o) for o, n in zip(found, spatial, strict=True))
    if any(s < 0 for s in sizes):
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 but received {{{', '.join(map(str, sizes))}}}")
    return sizes


def _single_size(name: str, output_size: Any) -> int:
    if output_size is None:
        raise TypeError(f"{name}(): argument 'output_size' (position 2) must be tuple of ints, not NoneType")
    found = (output_size,) if hasattr(output_size, "__index__") else tuple(output_size)
    if len(found) != 1:
        raise RuntimeError(f"{name}() argument 'output_size' should contain one int (got {len(found)})")
    return operator.index(found[0])


def _check_adaptive(name: str, count: int, input: Tensor, mark: str) -> None:
    shape = input._aval.shape
    if len(shape) not in (count + 1, count + 2):
        raise RuntimeError(f"{name}(): Expected {count + 1}D or {count + 2}D tensor, but got{mark} {list(shape)}")
    start = 0 if len(shape) == count + 1 else 1
    for i in range(start, len(shape)):
        if not shape[i]:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {list(shape)} with "
                f"dimension {i} being empty"
            )


def _adaptive_avg(name: str, count: int, input: Tensor, output_size: Any) -> Tensor:
    _check_tensor(name, input)
    _check_given_sizes(output_size, input)
    sizes = _output_size(name, count, output_size, input._aval.shape[-count:])
    _check_adaptive(name, count, input, "")
    if set(sizes) == {1}:
        return input.mean(tuple(range(-count, 0)), keepdim=True)
    return apply(registry[f"_adaptive_avg_pool{count}d"].bind((ARRAY, Static(sizes))), (input,))


@public("torch")
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """The means of `output_size` windows that cover (N, C, L) or (C, L). RuntimeError for a wrong shape."""
    _check_tensor("adaptive_avg_pool1d", input)
    _check_2_to_3(input, "adaptive_avg_pool1d")
    size = _single_size("adaptive_avg_pool1d", output_size)
    return squeeze(_adaptive_avg("adaptive_avg_pool2d", 2, unsqueeze(input, -2), (1, size)), -2)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The means of `output_size` windows (int or pair; None keeps a size) that cover (N, C, H, W) or (C, H, W). RuntimeError for a wrong shape."""
    return _adaptive_avg("adaptive_avg_pool2d", 2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """`adaptive_avg_pool2d` for (N, C, D, H, W) or (C, D, H, W)."""
    return _adaptive_avg("adaptive_avg_pool3d", 3, input, output_size)


def _adaptive_max(name: str, count: int, input: Tensor, output_size: Any, indices: bool) -> Any:
    _check_tensor(name, input)
    _check_given_sizes(output_size, input)
    _check_adaptive(name, count, input, ":")
    sizes = _output_size(name, count, output_size, input._aval.shape[-count:])
    out = apply(registry[f"_adaptive_max_pool{count}d"].bind((ARRAY, Static(sizes))), (input,))
    return out if indices else out[0]


def _adaptive_max1(input: Tensor, output_size: Any, indices: bool) -> Any:
    _check_tensor("adaptive_max_pool1d", input)
    _check_2_to_3(input, "adaptive_max_pool1d")
    size = _single_size("adaptive_max_pool1d", output_size)
    out = _adaptive_max("adaptive_max_pool2d", 2, unsqueeze(input, -2), (1, size), True)
    return tuple(squeeze(o, -2) for o in out) if indices else squeeze(out[0], -2)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of `output_size` windows that cover (N, C, L) or (C, L); with their indices if asked. RuntimeError for a wrong shape."""
    return _adaptive_max1(input, output_size, return_indices)


@public("torch.adaptive_max_pool1d")
def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """`adaptive_max_pool1d` with the indices."""
    return _adaptive_max1(input, output_size, True)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """`adaptive_max_pool1d` for (N, C, H, W) or (C, H, W); indices are flat."""
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """`adaptive_max_pool2d` with the indices."""
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, True)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """`adaptive_max_pool1d` for (N, C, D, H, W) or (C, D, H, W); indices are flat."""
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)


def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """`adaptive_max_pool3d` with the indices."""
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, True)
