"""Padding, pixel shuffling and resampling of torch.nn.functional."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from torchgrad_jax.calling.public import public
from torchgrad_jax.core.dispatch import apply
from torchgrad_jax.core.tensor import Tensor
from torchgrad_jax.declaration.operator import ARRAY, Static
from torchgrad_jax.functions.indexing import copy_
from torchgrad_jax.functions.views import narrow
from torchgrad_jax.nn.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from torchgrad_jax.operators import padding as _operators  # noqa: F401 - declares the operators
from torchgrad_jax.operators import registry
from torchgrad_jax.runtime.recorder import per_thread
from torchgrad_jax.runtime.user_code import warn_user

__all__ = [
    "channel_shuffle", "interpolate", "native_channel_shuffle", "pad", "pixel_shuffle", "pixel_unshuffle", "upsample", "upsample_bilinear",
    "upsample_nearest",
]  # fmt: skip


@public("torch")
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """`input` with `value` around it: amounts before and after, the last dimension's first. RuntimeError for what does not fit."""
    amounts = tuple(operator.index(p) for p in pad)
    shape = input._aval.shape
    if len(amounts) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(amounts)}")
    if len(amounts) > 2 * len(shape):
        raise RuntimeError(
            f"Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(amounts)} and input of dimension {len(shape)}"
        )
    for i in range(len(amounts) // 2):
        n, before, after = shape[-1 - i], amounts[2 * i], amounts[2 * i + 1]
        if n + before + after < 0 or n + min(before, 0) + min(after, 0) < 0:
            raise RuntimeError("narrow(): length must be non-negative.")
    return apply(registry["constant_pad_nd"].bind((ARRAY, Static(amounts), ARRAY)), (input, value))


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """`input` padded by a number, by its mirror image ("reflect"), its border ("replicate") or its other end ("circular").

    `pad` has the amounts before and after each dimension, the last dimension first; negative ones remove elements. RuntimeError and
    NotImplementedError for amounts that the mode does not allow.
    """
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    amounts = tuple(operator.index(p) for p in pad)
    dims, shape = len(amounts) // 2, input._aval.shape
    if dims not in (1, 2, 3) or len(shape) not in (dims + 1, dims + 2):
        raise NotImplementedError(
            f"Padding size {len(amounts)} is not supported for {len(shape)}D input tensor.\nSupported combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
            "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
        )
    if mode != "circular" and 0 in shape[len(shape) - dims - 1 :]:
        raise RuntimeError(
            f"Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: "
            f"{list(shape)}"
        )
    _check_amounts(shape, amounts, mode)
    if mode == "circular" and input.requires_grad and per_thread.recorder.grad_enabled:
        return _circular(input, amounts)
    return apply(registry[f"_{mode}_pad{dims}d"].bind((ARRAY, Static(amounts), Static(mode))), (input,))


def _circular(input: Tensor, amounts: tuple[int, ...]) -> Tensor:
    """Circular padding as PyTorch makes it: `input` is written into the middle, then the ends from what was written."""
    ndim, shape = input._aval.ndim, input._aval.shape
    pads = [(ndim - 1 - i, amounts[2 * i], amounts[2 * i + 1]) for i in range(len(amounts) // 2)]
    size = list(shape)
    for dim, before, after in pads:
        size[dim] += before + after
    out = input.new_empty(size)
    inner, middle = input, out
    for dim, before, after in reversed(pads):
        length = shape[dim] + min(before, 0) + min(after, 0)
        inner = narrow(inner, dim, max(-before, 0), length)
        middle = narrow(middle, dim, max(before, 0), length)
    copy_(middle, inner)
    for dim, before, after in pads:
        before, after = max(before, 0), max(after, 0)
        period = size[dim] - before - after
        if before:
            copy_(narrow(out, dim, 0, before), narrow(out, dim, period, before))
        if after:
            copy_(narrow(out, dim, size[dim] - after, after), narrow(out, dim, before, after))
    return out


def _check_amounts(shape: tuple[int, ...], amounts: tuple[int, ...], mode: str) -> None:
    for i in range(len(amounts) // 2):
        n, before, after = shape[-1 - i], amounts[2 * i], amounts[2 * i + 1]
        if mode == "circular" and max(before, after) > n:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if mode == "reflect" and max(before, after) >= n:
            raise RuntimeError(
                f"Argument #{4 + 2 * i}: Padding size should be less than the corresponding input dimension, but got: padding ({before}, {after}) at "
                f"dimension {len(shape) - 1 - i} of input {list(shape)}"
            )
    names = "WHD"[: len(amounts) // 2]
    sizes = [shape[-1 - i] + amounts[2 * i] + amounts[2 * i + 1] for i in range(len(names))]
    if min(sizes) < 1:
        if mode == "circular":
            raise RuntimeError("Negative padding value is resulting in an empty dimension")
        given = " ".join(f"{name}: {shape[-1 - i]}" for i, name in reversed(list(enumerate(names))))
        made = " ".join(f"{name}: {sizes[i]}" for i, name in reversed(list(enumerate(names))))
        raise RuntimeError(f"input ({given}) is too small. Calculated output {made}")


# ---------------------------------------------------------------------- between channels and space


def _need_3_dims(name: str, input: Tensor) -> None:
    if input._aval.ndim < 3:
        raise RuntimeError(f"{name} expects input to have at least 3 dimensions, but got input with {input._aval.ndim} dimension(s)")


@public("torch")
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C * r * r, H, W) to (*, C, H * r, W * r). RuntimeError for channels that do not divide."""
    _need_3_dims("pixel_shuffle", input)
    if upscale_factor <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {upscale_factor}")
    channels, square = input._aval.shape[-3], upscale_factor * upscale_factor
    if channels % square:
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
            f"input.size(-3)={channels} is not divisible by {square}"
        )
    return apply(registry["pixel_shuffle"].bind((ARRAY, Static(upscale_factor))), (input,))


@public("torch")
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H * r, W * r) to (*, C * r * r, H, W). RuntimeError for sizes that do not divide."""
    _need_3_dims("pixel_unshuffle", input)
    if downscale_factor <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {downscale_factor}")
    for label, axis in (("height", -2), ("width", -1)):
        n = input._aval.shape[axis]
        if n % downscale_factor:
            raise RuntimeError(
                f"pixel_unshuffle expects {label} to be divisible by downscale_factor, but "
                f"input.size({axis})={n} is not divisible by {downscale_factor}"
            )
    return apply(registry["pixel_unshuffle"].bind((ARRAY, Static(downscale_factor))), (input,))


@public("torch")
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels of (N, C, *) taken in turn from each of `groups` groups. RuntimeError where they do not divide."""
    return _channels_shuffled("channel_shuffle", input, groups)


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """`channel_shuffle`; as in PyTorch it has no derivative."""
    return _channels_shuffled("native_channel_shuffle", input, groups)


def _channels_shuffled(name: str, input: Tensor, groups: int) -> Tensor:
    _need_3_dims("channel_shuffle", input)
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if input._aval.shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {input._aval.shape[1]} channels and {groups} groups.")
    return apply(registry[name].bind((ARRAY, Static(groups))), (input,))


# ---------------------------------------------------------------------- resampling

_DIMS = {"linear": 3, "bilinear": 4, "trilinear": 5}
_CORNERLESS = ("nearest", "area", "nearest-exact")
_MODES = "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact"


def _scaled(input: Tensor, size: Any, scale_factor: Any) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
    """The output size and the scale factors, whichever is given. ValueError for both, none or a wrong number of them."""
    spatial = list(input._aval.shape[2:])
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    given = size if size is not None else scale_factor
    if given is None:
        raise ValueError("either size or scale_factor should be defined")
    if not isinstance(given, (tuple, list)):
        given = (given if size is None else operator.index(given),) * len(spatial)
    if len(given) != len(spatial):
        label, letter = ("output size", "o") if size is not None else ("scale_factor", "s")
        word = "output size of" if size is not None else "scale_factor of shape"
        raise ValueError(
            f"Input and {'output' if size is not None else label} must have the same number of spatial dimensions, but got input with "
            f"spatial dimensions of {spatial} and {word} {given}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and {label} in "
            f"({letter}1, {letter}2, ...,{letter}K) format."
        )
    if size is not None:
        if not all(hasattr(s, "__index__") for s in given):
            kinds = [type(s) for s in given]
            raise TypeError(
                f"expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, int], but got size with types {kinds}"
            )
        return tuple(operator.index(s) for s in given), None
    return None, tuple(float(s) for s in given)


def _check_options(input: Tensor, mode: str, align_corners: bool | None, antialias: bool) -> None:
    """ValueError for align_corners or antialias with a mode or dimensions that have none."""
    four = input._aval.ndim == 4
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and four):
        raise ValueError("Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input")
    if mode == "lanczos" and four and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")
    if mode == "lanczos" and four and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")


def _check_mode(input: Tensor, mode: str) -> None:
    """NotImplementedError for a mode that is none, or not for so many dimensions."""
    ndim = input._aval.ndim
    if mode in _DIMS and 3 <= ndim <= 5 and ndim != _DIMS[mode]:
        raise NotImplementedError(f"Got {ndim}D input, but {mode} mode needs {_DIMS[mode]}D input")
    if not 3 <= ndim <= 5 or not (mode in _DIMS or mode in _CORNERLESS or (mode in ("bicubic", "lanczos") and ndim == 4)):
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: {_MODES} (got {mode})")


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """(N, C, *) resampled to `size`, or by `scale_factor`. Modes: nearest, nearest-exact, linear, bilinear, trilinear, bicubic, lanczos, area.

    antialias: the filters of bilinear, bicubic and lanczos, of 4-d tensors of float32, float64 and uint8, become wider where something is made
    smaller; bicubic is then Keys' cubic with a = -0.5 instead of -0.75. ValueError for a missing or doubled size and for options that the mode has
    not, NotImplementedError for a mode that does not fit the dimensions, RuntimeError for empty images.
    """
    if mode in _CORNERLESS and align_corners is not None:
        raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear")
    out, factors = _scaled(input, size, scale_factor)
    _check_options(input, mode, align_corners, antialias)
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    _check_mode(input, mode)
    spatial = input._aval.shape[2:]
    if out is None:
        assert factors is not None
        out = tuple(int(math.floor(n * f)) for n, f in zip(spatial, factors, strict=True))
        if recompute_scale_factor:
            factors = None
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[len(spatial) - 1](input, out)
    if min(out) < 1 or min(spatial) < 1:
        names = "DHW"[-len(spatial) :]
        given, made = (", ".join(f"{name}: {n}" for name, n in zip(names, sizes, strict=True)) for sizes in (spatial, out))
        between = " and" if len(spatial) == 1 else ""
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input ({given}){between} output ({made})")
    if not input._aval.shape[1]:
        shape = list(input._aval.shape)
        raise RuntimeError(f"Non-empty {len(shape)}D data tensor expected but got a tensor with sizes {shape}")
    name = f"_upsample_{mode.replace('-', '_')}{len(spatial)}d" + ("_aa" if antialias else "")
    scales = None if factors is None else tuple(map(float, factors))
    bound = registry[name].bind((ARRAY, Static(out), Static(scales), Static(mode + ("_aa" if antialias else "")), Static(bool(align_corners))))
    return apply(bound, (input,))


def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None) -> Tensor:
    """`interpolate` by its old name."""
    return _deprecated("upsample", input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "nearest"."""
    return _deprecated("upsample_nearest", input, size, scale_factor, "nearest", None)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "bilinear" and align_corners."""
    return _deprecated("upsample_bilinear", input, size, scale_factor, "bilinear", True)


def _deprecated(name: str, input: Tensor, size: Any, scale_factor: Any, mode: str, align_corners: bool | None) -> Tensor:
    warn_user(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.", UserWarning)
    return interpolate(input, size, scale_factor, mode, align_corners)
