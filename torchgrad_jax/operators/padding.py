"""Padding, and the operators that move elements between channels and space."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration import numpy_forms as forms
from torchgrad_jax.declaration.converting import convert
from torchgrad_jax.declaration.memory_order import IMAGE_ALONE
from torchgrad_jax.declaration.operator import NOT_IMPLEMENTED, op
from torchgrad_jax.declaration.refusals import no_derivative, refusing
from torchgrad_jax.operators.resampling import EACH_TAP, MOST_TAPS, Taps, are_for_taps
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.operation import stand_in

Ints = tuple[int, ...]


def _config(pad: Ints, ndim: int) -> list[tuple[int, int, int]]:
    """PyTorch's flat list, last dimension first, as lax.pad has it."""
    pairs = [(pad[2 * i], pad[2 * i + 1], 0) for i in range(len(pad) // 2)]
    return [(0, 0, 0)] * (ndim - len(pairs)) + pairs[::-1]


@op("constant_pad_nd(Tensor self, int[] pad, Scalar value)", order=IMAGE_ALONE, method=False, toplevel=False,
    grads={"self": lambda grad, pad: lax.pad(grad, jnp.zeros((), grad.dtype), _config(tuple(-p for p in pad), grad.ndim))},
    numpy=forms.constant_pad, numpy_vjp=forms.constant_pad_vjp)  # fmt: skip
def constant_pad_nd(x: Any, value: Any, pad: Ints) -> Any:
    """`x` with `value` around it; a negative amount removes elements."""
    return lax.pad(x, convert(value, np.dtype(x.dtype)), _config(pad, x.ndim))


def _source(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """Which element of a dimension of size `n` stands at each place of the padded one."""
    at = np.arange(-before, n + after)
    if mode == "replicate":
        return np.clip(at, 0, n - 1)
    if mode == "circular":
        # What is removed does not come back at the other end.
        start, kept = max(-before, 0), n + min(before, 0) + min(after, 0)
        return (at - start) % kept + start
    return np.where(at < 0, -at, np.where(at >= n, 2 * (n - 1) - at, at))


def _pad_by_index(x: Any, pad: Ints, mode: str) -> Any:
    """`x` with elements of its own around it."""
    for i in range(len(pad) // 2):
        axis = x.ndim - 1 - i
        n, before, after = x.shape[axis], pad[2 * i], pad[2 * i + 1]
        if before or after:
            x = _taps(n, before, after, mode).apply(x, axis)
    return x


def _taps(n: int, before: int, after: int, mode: str) -> Taps:
    return Taps(_source(n, before, after, mode)[:, None], None, None, n)


def _pad_by_index_back(grad: Any, shape: Ints, pad: Ints, mode: str) -> Any:
    for i in reversed(range(len(pad) // 2)):
        axis = len(shape) - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        if before or after:
            grad = _taps(shape[axis], before, after, mode).transposed().apply(grad, axis)
    return grad


def _padded(x: np.ndarray, pad: Ints, mode: str) -> np.ndarray:
    """`_pad_by_index` of a NumPy array."""
    for i in range(len(pad) // 2):
        axis = x.ndim - 1 - i
        if pad[2 * i] or pad[2 * i + 1]:
            x = x.take(_source(x.shape[axis], pad[2 * i], pad[2 * i + 1], mode), axis, mode="clip")
    return x


def _padded_shape(x: np.ndarray, pad: Ints, mode: str) -> np.ndarray | None:
    first = x.ndim - len(pad) // 2
    shape = (*x.shape[:first], *[n + pad[2 * i] + pad[2 * i + 1] for i, n in zip(reversed(range(len(pad) // 2)), x.shape[first:], strict=True)])
    return stand_in(shape, x.dtype) if first >= 0 and x.size and min(shape) > 0 else None


def _padded_back(grad: np.ndarray, aval: Any, *_: np.ndarray, pad: Ints, mode: str) -> np.ndarray:
    for i in reversed(range(len(pad) // 2)):
        axis = aval.ndim - 1 - i
        if pad[2 * i] or pad[2 * i + 1]:
            taps = _taps(aval.shape[axis], pad[2 * i], pad[2 * i + 1], mode).transposed()
            grad = taps.of_array(grad, axis) if are_for_taps(grad) else _tap_by_tap(grad, taps, axis)
    return grad


def _tap_by_tap(x: np.ndarray, taps: Taps, axis: int) -> np.ndarray:
    """Sums along a dimension that the loop is not for."""
    total, shape = np.zeros((), x.dtype), (-1,) + (1,) * (x.ndim - 1 - axis)
    for k in range(taps.index.shape[1]):
        part = x.take(taps.index[:, k], axis)
        there = True if taps.there is None else taps.there[:, k].reshape(shape)
        total = total + np.where(there, part, x.dtype.type(0))
    return total


def _padded_back_shape(grad: np.ndarray, aval: Any, *_: np.ndarray, pad: Ints, mode: str) -> np.ndarray | None:
    by_taps = are_for_taps(grad) or (grad.dtype == np.float64 and grad.size > 0 and sum(map(abs, pad)) < MOST_TAPS)
    return stand_in(aval.shape, aval.dtype) if by_taps and aval.size else None


_PADDED = Forms(_padded, _padded_shape, each=EACH_TAP, planned=True)
_PADDED_BACK = Forms(_padded_back, _padded_back_shape, each=EACH_TAP, planned=True)


for _dims in (1, 2, 3):
    for _mode, _name in (("reflect", "Reflection"), ("replicate", "Replication"), ("circular", "Circular")):
        op(f"_{_mode}_pad{_dims}d(Tensor self, int[] pad, str mode)", node=f"{_name}Pad{_dims}DBackward0", linear=True, transpose=_pad_by_index_back,
           method=False, toplevel=False, validate=None if _mode == "circular" else refusing(f"{_name.lower()}_pad{_dims}d", "b"),
           keeps=() if _mode == "circular" else ("self",), numpy=_PADDED, numpy_vjp=_PADDED_BACK)(_pad_by_index)  # fmt: skip


# ---------------------------------------------------------------------- between channels and space


@op("pixel_shuffle(Tensor self, int upscale_factor)", order=IMAGE_ALONE, linear=True, method=False, toplevel=False,
    numpy=forms.pixel_shuffle, numpy_vjp=forms.pixel_shuffle_vjp, attributes="upscale_factor")  # fmt: skip
def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    """(*, C * r * r, H, W) to (*, C, H * r, W * r)."""
    r = upscale_factor
    *lead, c, h, w = x.shape
    n = len(lead)
    blocks = lax.reshape(x, (*lead, c // (r * r), r, r, h, w))
    order = (*range(n + 1), n + 3, n + 1, n + 4, n + 2)
    return lax.reshape(lax.transpose(blocks, order), (*lead, c // (r * r), h * r, w * r))


@op("pixel_unshuffle(Tensor self, int downscale_factor)", order=IMAGE_ALONE, linear=True, method=False, toplevel=False,
    numpy=forms.pixel_unshuffle, numpy_vjp=forms.pixel_unshuffle_vjp)  # fmt: skip
def pixel_unshuffle(x: Any, downscale_factor: int) -> Any:
    """(*, C, H * r, W * r) to (*, C * r * r, H, W)."""
    r = downscale_factor
    *lead, c, h, w = x.shape
    n = len(lead)
    blocks = lax.reshape(x, (*lead, c, h // r, r, w // r, r))
    order = (*range(n + 1), n + 2, n + 4, n + 1, n + 3)
    return lax.reshape(lax.transpose(blocks, order), (*lead, c * r * r, h // r, w // r))


@op("channel_shuffle(Tensor self, int groups)", order=IMAGE_ALONE, linear=True, method=False, toplevel=False, numpy=forms.channel_shuffle)
def channel_shuffle(x: Any, groups: int) -> Any:
    """The channels of (N, C, *), split into groups, taken in turn from each group."""
    return _shuffled(x, groups)


@op(
    "native_channel_shuffle(Tensor self, int groups)",
    order=IMAGE_ALONE,
    method=False,
    toplevel=False,
    node=NOT_IMPLEMENTED,
    grads={"self": no_derivative("native_channel_shuffle")},
    numpy=forms.channel_shuffle,
)
def native_channel_shuffle(x: Any, groups: int) -> Any:
    """`channel_shuffle` by PyTorch's kernel, which has no derivative."""
    return _shuffled(x, groups)


def _shuffled(x: Any, groups: int) -> Any:
    n, c, *spatial = x.shape
    blocks = lax.reshape(x, (n, groups, c // groups, *spatial))
    return lax.reshape(jnp.swapaxes(blocks, 1, 2), x.shape)
