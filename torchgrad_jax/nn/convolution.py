"""Convolutions of torch.nn.functional, and sliding blocks."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from torchgrad_jax.calling.out import with_out
from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions.views import clone, narrow, select, squeeze, unsqueeze, view_as_real
from torchgrad_jax.nn.padding import constant_pad_nd
from torchgrad_jax.operators import convolution as _operators  # noqa: F401 - declares the operators
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.user_code import warn_once

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold", "unfold"]

Ints = tuple[int, ...]
_CONVOLUTION = registry["convolution"]


def _numbers(name: str, value: Any, count: int) -> tuple[int, ...]:
    found = (operator.index(value),) if hasattr(value, "__index__") else tuple(operator.index(v) for v in value)
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {count} values to match the convolution dimensions, "
            f"but got {name}={list(found)}"
        )
    return found


def _check_tensors(name: str, input: Any, weight: Any, bias: Any) -> None:
    if not isinstance(input, Tensor) or not isinstance(weight, Tensor) or not (bias is None or isinstance(bias, Tensor)):
        given = ", ".join(type(a).__name__ for a in (input, weight, *(() if bias is None else (bias,))))
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({given})")


def _convolve(
    name: str, count: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: tuple[int, ...], dilation: tuple[int, ...],
    output_padding: Any, groups: int, transposed: bool,
) -> Tensor:  # fmt: skip
    ndim = input._aval.ndim
    if input._aval.dtype.kind == weight._aval.dtype.kind == "c":
        options = stride, padding, dilation, output_padding, groups, transposed
        if ndim == count + 1:
            return squeeze(_convolve(name, count, unsqueeze(input, 0), weight, bias, *options), 0)
        return _of_complex(lambda x, w, b: _convolve(name, count, x, w, b, *options), input, weight, bias)
    if ndim not in (count + 1, count + 2):
        raise RuntimeError(
            f"Expected {count + 1}D (unbatched) or {count + 2}D (batched) input to {name}, but got input of size: {list(input._aval.shape)}"
        )
    dims = weight._aval.ndim - 2
    if dims < 1:
        raise RuntimeError("weight should have at least three dimensions")
    if dims != count:
        stride, padding = _numbers("stride", list(stride), dims), _numbers("padding", list(padding), dims)
        raise RuntimeError(_mismatch(input, weight, " "))
    bound = _CONVOLUTION.bind(
        (ARRAY, ARRAY, Static(None) if bias is None else ARRAY, Static(stride), Static(padding), Static(dilation), Static(transposed),
         Static(output_padding), Static(groups))
    )  # fmt: skip
    batched = input if ndim == count + 2 else unsqueeze(input, 0)
    out = apply(bound, (batched, weight) if bias is None else (batched, weight, bias))
    if not (transposed or batched._aval.shape[1]):  # PyTorch makes no output channels of no channels
        out = clone(narrow(out, 1, 0, 0))
    return out if ndim == count + 2 else squeeze(out, 0)


def _of_complex(convolve: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A complex convolution by three real ones, as PyTorch makes it."""
    (x, xi), (w, wi) = ([select(view_as_real(t), -1, i) for i in (0, 1)] for t in (input, weight))
    b, bi = (None, None) if bias is None else (select(view_as_real(bias), -1, i) for i in (0, 1))
    real, imaginary = convolve(x, w, b), convolve(xi, wi, None)
    both = convolve(x + xi, w + wi, None if b is None else b + bi)
    return (real - imaginary) + 1j * (both - real - imaginary)


def _mismatch(input: Tensor, weight: Tensor, gap: str) -> str:
    dims, x = weight._aval.ndim, list(input._aval.shape)
    return (
        f"Expected {dims}-dimensional input for {dims}-dimensional weight{gap}{list(weight._aval.shape)}, but got {len(x)}-dimensional input of "
        f"size {x} instead"
    )


def _same(count: int, input: Tensor, weight: Tensor, stride: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """The input and the padding that make the result as large as the input."""
    if weight._aval.ndim < 3:
        raise RuntimeError("weight should have at least three dimensions")
    if weight._aval.ndim != count + 2:
        raise RuntimeError(_mismatch(input, weight, ""))
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for k, d in zip(weight._aval.shape[2:], dilation, strict=True)]
    half = tuple(t // 2 for t in total)
    if all(t % 2 == 0 for t in total):
        return input, half
    warn_once("Using padding='same' with even kernel lengths and odd dilation may require a zero-padded copy of the input be created")
    return constant_pad_nd(input, [side for t in reversed(total) for side in (0, t % 2)]), half


def _conv(name: str, count: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    _check_tensors(name, input, weight, bias)
    stride, dilation = _numbers("stride", stride, count), _numbers("dilation", dilation, count)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise RuntimeError(f"Invalid padding string: '{padding}'")
        pads = (0,) * count
        if padding == "same":
            input, pads = _same(count, input, weight, stride, dilation)
    else:
        pads = _numbers("padding", padding, count)
    return _convolve(name, count, input, weight, bias, stride, pads, dilation, (0,) * count, groups, False)


def _conv_transpose(
    name: str, count: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, output_padding: Any,
    groups: int, dilation: Any,
) -> Tensor:  # fmt: skip
    _check_tensors(name, input, weight, bias)
    given = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    stride, padding, dilation, output_padding = (_numbers(n, v, count) for n, v in given.items())
    return _convolve(name, count, input, weight, bias, stride, padding, dilation, output_padding, groups, True)


@public("torch")
def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """The cross-correlation of (N, C, L) or (C, L) with (O, C / groups, K).

    `padding`: a number, "valid" or "same". RuntimeError for what does not fit.
    """
    return _conv("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@public("torch")
def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """`conv1d` for (N, C, H, W) or (C, H, W) and (O, C / groups, KH, KW)."""
    return _conv("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@public("torch")
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """`conv1d` for (N, C, D, H, W) or (C, D, H, W) and (O, C / groups, KD, KH, KW)."""
    return _conv("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@public("torch")
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The transpose of `conv1d` in its input: (N, C, L) with a weight (C, O / groups, K). RuntimeError for what does not fit."""
    return _conv_transpose("conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@public("torch")
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The transpose of `conv2d` in its input."""
    return _conv_transpose("conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@public("torch")
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """The transpose of `conv3d` in its input."""
    return _conv_transpose("conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation)


@public("torch")
def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, *, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """What all the others are: (N, C, *) with (O, C / groups, *), or (C, O / groups, *) if transposed. RuntimeError for what does not fit."""
    count = max(weight._aval.ndim - 2, 1)
    if input._aval.ndim != count + 2:
        raise RuntimeError(_mismatch(input, weight, " "))
    given = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    strides, pads, dilated, output_pads = (_numbers(n, v, count) for n, v in given.items())
    made = _convolve("convolution", count, input, weight, bias, strides, pads, dilated, output_pads, groups, bool(transposed))
    return with_out("convolution", out, made)


# ---------------------------------------------------------------------- sliding blocks


def _pair(name: str, value: int | Sequence[int]) -> tuple[int, int]:
    """Two numbers. RuntimeError for a sequence of another length, and for numbers too small."""
    found = (value, value) if isinstance(value, int) else tuple(value)
    if len(found) != 2:
        raise RuntimeError(f"It is expected {name} equals to 2, but got size {len(found)}")
    what, least, words = {"padding": ("pad", 0, "non-negative"), "output_size": ("", None, "")}.get(
        name, (name.removesuffix("_size"), 1, "greater than zero")
    )
    if least is not None and min(found) < least:
        raise RuntimeError(f"{name.replace('_', ' ')} should be {words}, but got {what}_height: {found[0]} {what}_width: {found[1]}")
    return found


def _block_settings(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> list[tuple[int, int]]:
    given = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    return [_pair(name, value) for name, value in given.items()]


def _block_counts(sizes: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Ints:
    return _operators.output_sizes(sizes, kernel, stride, padding, dilation)


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The sliding blocks of (N, C, H, W) as columns: (N, C * prod(kernel_size), L). RuntimeError where no block fits."""
    kernel, dilated, padded, strides = _block_settings(kernel_size, dilation, padding, stride)
    shape = input._aval.shape
    if len(shape) not in (3, 4) or 0 in shape[len(shape) - 3 :]:
        raise RuntimeError(
            f"Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {list(shape)}"
        )
    counts = _block_counts(shape[-2:], kernel, dilated, padded, strides)
    if min(counts) < 1:
        raise RuntimeError(
            f"Given input with spatial size {shape[-2:]}, kernel_size={kernel}, dilation={dilated}, padding={padded}, "
            f"calculated shape of the array of sliding blocks as {counts}, but its components must be at least one."
        )
    bound = registry["im2col"].bind((ARRAY, Static(kernel), Static(dilated), Static(padded), Static(strides)))
    return apply(bound, (input,))


def fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Columns (N, C * prod(kernel_size), L) added up as an image (N, C, *output_size). RuntimeError where their number does not fit."""
    size = _pair("output_size", output_size)
    kernel, dilated, padded, strides = _block_settings(kernel_size, dilation, padding, stride)
    shape = input._aval.shape
    if len(shape) not in (2, 3):
        raise RuntimeError(
            f"Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for input, but got: {list(shape)}"
        )
    if shape[-2] % math.prod(kernel):
        raise RuntimeError(
            f"Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input.size(1)={shape[-2]} and "
            f"kernel_size={kernel}."
        )
    counts = _block_counts(size, kernel, dilated, padded, strides)
    if math.prod(counts) != shape[-1]:
        raise RuntimeError(
            f"Given output_size={size}, kernel_size={kernel}, dilation={dilated}, padding={padded}, stride={strides}, "
            f"expected size of input's dimension 2 to match the calculated number "
            f"of sliding blocks {counts[0]} * {counts[1]} = {math.prod(counts)}, but got input.size(2)={shape[-1]}."
        )
    bound = registry["col2im"].bind((ARRAY, Static(size), Static(kernel), Static(dilated), Static(padded), Static(strides)))
    return apply(bound, (input,))
