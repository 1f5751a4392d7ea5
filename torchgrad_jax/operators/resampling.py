"""Interpolation: each new element of a dimension is a weighted sum of a few old ones.

Not a product with a matrix, which is mostly zeros: nan and infinities would spread through the whole dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jax import lax
from jax import numpy as jnp

from torchgrad_jax.declaration.converting import where, wide
from torchgrad_jax.declaration.memory_order import IMAGE_ALONE
from torchgrad_jax.declaration.operator import op
from torchgrad_jax.declaration.refusals import refusing
from torchgrad_jax.operators.matrix import PRECISION
from torchgrad_jax.runtime.baseline import Forms
from torchgrad_jax.runtime.baseline.copying import contiguous
from torchgrad_jax.runtime.baseline.loops import how_of_taps
from torchgrad_jax.runtime.compiling import primitives
from torchgrad_jax.runtime.compiling.foreign import TAPS, knows
from torchgrad_jax.runtime.native import handlers
from torchgrad_jax.runtime.operation import stand_in

Ints = tuple[int, ...]
# Sums of more elements are products with a matrix nevertheless: one operation for each element takes too long to compile.
MOST_TAPS = 64


class _Held:
    """Taps, as what a primitive is told: told from others by being the same."""

    __slots__ = ("index", "weight", "there", "said")

    def __init__(self, taps: Taps) -> None:
        self.index, self.weight, self.there, self.said = taps.index, taps.weight, taps.there, taps._said


def _shapes(x: Any, *, taps: _Held, axis: int) -> list[Ints]:
    return [(*x.shape[:axis], len(taps.index), *x.shape[axis + 1 :])]


_LOOP = primitives.primitive("resample", lambda x, taps, axis: [taps.said(x, axis)], primitives.Loop(TAPS, how_of_taps, _shapes))


class Taps(NamedTuple):
    """What the elements of a dimension are made of: `index` and `weight`, each (new size, the most that one is made of), and `there`, of the same
    shape, or None where all are made of as many. weight: None where all are 1. size: of the old dimension."""

    index: np.ndarray
    weight: np.ndarray | None
    there: np.ndarray | None
    size: int

    def transposed(self) -> Taps:
        """The taps by which gradients go back."""
        new, taken = np.nonzero(np.ones(self.index.shape, bool) if self.there is None else self.there)
        old = self.index[new, taken]
        order = np.argsort(old, kind="stable")
        counts = np.bincount(old, minlength=self.size)
        most = int(counts.max(initial=1))
        place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        index, weight = np.zeros((self.size, most), np.int64), None
        index[old[order], place] = new[order]
        if self.weight is not None:
            weight = np.zeros((self.size, most))
            weight[old[order], place] = self.weight[new, taken][order]
        return Taps(index, weight, np.arange(most) < counts[:, None], len(self.index))

    def apply(self, x: Any, axis: int) -> Any:
        """`x` with these sums in the place of its dimension `axis`."""
        if x.dtype == np.float32 and 0 not in (x.size, self.index.size) and primitives.has(TAPS):
            return _LOOP.bind(x, taps=_Held(self), axis=axis % x.ndim)[0]
        return self._said(x, axis)

    def of_array(self, x: np.ndarray, axis: int) -> np.ndarray:
        """The same of a NumPy array of float32."""
        made = np.empty((*x.shape[:axis], len(self.index), *x.shape[axis + 1 :]), np.float32)
        handlers.resample(contiguous(x), made, how_of_taps(x, taps=self, axis=axis))
        return made

    def _said(self, x: Any, axis: int) -> Any:
        new, most = self.index.shape
        if most > MOST_TAPS:
            matrix, weight = np.zeros((self.size, new)), 1.0 if self.weight is None else self.weight
            np.add.at(matrix, (self.index, np.arange(new)[:, None]), weight if self.there is None else weight * self.there)
            made = lax.dot_general(x, jnp.asarray(matrix, x.dtype), (((axis,), (0,)), ((), ())), precision=PRECISION)
            return jnp.moveaxis(made, -1, axis)
        shape = [new if d == axis else 1 for d in range(x.ndim)]
        total: Any = None
        for k in range(most):
            part = jnp.take(x, self.index[:, k], axis=axis, mode="clip")
            if self.weight is not None:
                part = part * self.weight[:, k].astype(x.dtype).reshape(shape)
            if self.there is not None and not self.there[:, k].all():
                part = where(self.there[:, k].reshape(shape), part, jnp.zeros((), x.dtype))
            total = part if total is None else total + part
        return total


def means(start: np.ndarray, stop: np.ndarray, size: int) -> Taps:
    """The means of the windows from `start` to `stop` of a dimension of `size`."""
    counts = np.maximum(stop - start, 1)
    index = start[:, None] + np.arange(int(counts.max(initial=1)))
    return Taps(np.minimum(index, size - 1), np.broadcast_to(1 / counts[:, None], index.shape), index < stop[:, None], size)


# ---------------------------------------------------------------------- resampling


def _nearest_index(n: int, out: int, scale: float, exact: bool) -> np.ndarray:
    at = np.arange(out, dtype=np.float32)
    found = np.floor((at + np.float32(0.5)) * np.float32(scale)) if exact else np.floor(at * np.float32(scale))
    return np.minimum(found.astype(np.int64), n - 1)


def _cubic(t: np.ndarray, a: float = -0.75) -> np.ndarray:
    """Keys' cubic convolution kernel."""
    t = np.abs(t)
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


@lru_cache(maxsize=256)
def _taps(n: int, out: int, scale: float, mode: str, align_corners: bool) -> Taps:
    """How a mode interpolates between the elements of a dimension."""
    i = np.arange(out)
    if mode.startswith("nearest"):
        return Taps(_nearest_index(n, out, scale, mode == "nearest-exact")[:, None], None, None, n)
    cubic = mode == "bicubic"
    if align_corners:
        at = i * ((n - 1) / (out - 1)) if out > 1 else np.zeros(out)
    else:
        at = (i + 0.5) * scale - 0.5
        at = at if cubic else np.maximum(at, 0.0)
    low = np.floor(at).astype(np.int64)
    steps = range(-1, 3) if cubic else range(2)
    weights = [_cubic(at - (low + k)) if cubic else np.where(k, at - low, 1 - (at - low)) for k in steps]
    return Taps(np.stack([np.clip(low + k, 0, n - 1) for k in steps], 1), np.stack(weights, 1), None, n)


# Antialiased: half the width of the filter where nothing is made smaller, and its value.
_FILTERS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "bilinear": (1, lambda t: np.maximum(1 - np.abs(t), 0)),
    "bicubic": (2, lambda t: _cubic(t, -0.5)),
    "lanczos": (3, lambda t: np.where(np.abs(t) < 3, np.sinc(t) * np.sinc(t / 3), 0)),
}


@lru_cache(maxsize=256)
def _antialiased_taps(n: int, out: int, scale: float, mode: str, align_corners: bool, dtype: type) -> Taps | None:
    """How a mode weighs all elements that its filter, widened by `scale` where that is above 1, reaches around each new element (Heckbert 1989,
    Fundamentals of Texture Mapping and Image Warping, 3.5.1). Weights sum to 1, and are rounded as PyTorch computes them, in `dtype`. None: the
    dimension stays as it is, whatever the scale."""
    if n == out:
        return None
    if align_corners:
        scale = (n - 1) / (out - 1) if out > 1 else 0.0
    half, filtered = _FILTERS[mode]
    step = dtype(scale)
    wide = max(step, dtype(1))
    center = step * (np.arange(out, dtype=dtype) + dtype(0.5))
    start = np.maximum(np.trunc(center - half * wide + 0.5), 0).astype(np.int64)
    stop = np.minimum(np.trunc(center + half * wide + 0.5), n).astype(np.int64)
    most = int((stop - start).max())
    # Windows near the end begin earlier, so that no element is in one twice.
    index = np.minimum(start, n - most)[:, None] + np.arange(most)
    there = (index >= start[:, None]) & (index < stop[:, None])
    weight = np.where(there, filtered((index.astype(dtype) - center[:, None] + dtype(0.5)) / wide), dtype(0))
    total = weight.sum(1, keepdims=True)
    return Taps(index, weight / np.where(total == 0, 1, total), there, n)


def _taps_of(shape: Ints, dtype: Any, output_size: Ints, scales: tuple[float, ...] | None, mode: str, align_corners: bool) -> list[tuple[int, Taps]]:
    """The dimensions that are interpolated, and how. dtype: of the elements."""
    first, found, kind = len(shape) - len(output_size), [], mode.removesuffix("_aa")
    computed = np.float32 if dtype == np.float32 else np.float64
    for i, out in enumerate(output_size):
        n = shape[first + i]
        how = n, out, n / out if scales is None else 1 / scales[i], kind, align_corners
        taps = _taps(*how) if kind == mode else _antialiased_taps(*how, computed)
        if taps is not None:
            found.append((first + i, taps))
    return found


def _upsample(x: Any, mode: str, **how: Any) -> Any:
    dtype, x = x.dtype, x if mode.startswith("nearest") else wide(x)
    if dtype == np.uint8 and not mode.startswith("nearest"):
        return _upsample_bytes(x, mode, **how)
    for axis, taps in _taps_of(x.shape, x.dtype, mode=mode, **how):
        x = taps.apply(x, axis)
    return x.astype(dtype)


def _upsample_bytes(x: Any, mode: str, **how: Any) -> Any:
    """8 bits, brought back to 8 bits after each dimension, the last one first, by weights that are whole numbers of 16 bits."""
    for axis, taps in reversed(_taps_of(x.shape, x.dtype, mode=mode, **how)):
        assert taps.weight is not None
        weight = taps.weight.copy()
        for k in range(weight.shape[1] - 1):  # what is taken twice, at the ends, is one number
            again = taps.index[:, k] == taps.index[:, k + 1]
            weight[:, k + 1] += np.where(again, weight[:, k], 0)
            weight[:, k] = np.where(again, 0, weight[:, k])
        digits = 0
        while digits < 22 and int(0.5 + weight.max(initial=0) * 2 ** (digits + 1)) < 2**15:
            digits += 1
        whole = np.trunc(weight * 2**digits + np.copysign(0.5, weight)).astype(np.int32)
        total = taps._replace(weight=whole).apply(x.astype(np.int32), axis)
        x = jnp.clip(lax.shift_right_arithmetic(total + np.int32(2 ** (digits - 1)), np.int32(digits)), 0, 255)
    return x.astype(np.uint8)


def _upsample_back(grad: Any, shape: Ints, **how: Any) -> Any:
    dtype, grad = grad.dtype, wide(grad)
    for axis, taps in reversed(_taps_of(shape, grad.dtype, **how)):
        grad = taps.transposed().apply(grad, axis)
    return grad.astype(dtype)


def _resized(x: np.ndarray, **how: Any) -> np.ndarray:
    """`_upsample` of a NumPy array."""
    for axis, taps in _taps_of(x.shape, x.dtype, **how):
        x = taps.of_array(x, axis)
    return x


def _resized_back(grad: np.ndarray, aval: Any, **how: Any) -> np.ndarray:
    for axis, taps in reversed(_taps_of(aval.shape, grad.dtype, **how)):
        grad = taps.transposed().of_array(grad, axis)
    return grad


def are_for_taps(x: np.ndarray) -> bool:
    """Whether there is the loop, and it is for such an array."""
    return x.dtype == np.float32 and x.size > 0 and knows(TAPS)


def _resized_shape(x: np.ndarray, output_size: Ints, **_: Any) -> np.ndarray | None:
    return stand_in((*x.shape[: -len(output_size)], *output_size), x.dtype) if are_for_taps(x) and 0 not in output_size else None


# An element that is read, or made, takes so many nanoseconds.
EACH_TAP = 1.0
_RESIZED = Forms(_resized, _resized_shape, True, each=EACH_TAP, planned=True)
_RESIZED_BACK = Forms(
    _resized_back,
    lambda grad, aval, **_: stand_in(aval.shape, aval.dtype) if are_for_taps(grad) and aval.size else None,
    True,
    each=EACH_TAP,
    planned=True,
)


def _attributes(mode: str) -> str:
    scales = {"1": "scales", "2": "scales_h scales_w", "3": "scales_d scales_h scales_w"}[mode.removesuffix("_aa")[-2]]
    return f"output_size {scales} self_sym_sizes" + ("" if mode.startswith("nearest") else " align_corners")


# The mode, its node, and the kernel that PyTorch interpolates with: floating point, most of them 8 bits too.
for _mode, _node, _kernel in (
    ("nearest1d", "Nearest1D", "compute_indices_weights_nearest"), ("nearest_exact1d", "NearestExact1D", "compute_indices_weights_nearest"),
    ("nearest2d", "Nearest2D", "upsample_nearest2d_channels_last"), ("nearest_exact2d", "NearestExact2D", "upsample_nearest2d_channels_last"),
    ("nearest3d", "Nearest3D", "compute_indices_weights_nearest"), ("nearest_exact3d", "NearestExact3D", "compute_indices_weights_nearest"),
    ("linear1d", "Linear1D", "compute_indices_weights_linear"), ("bilinear2d", "Bilinear2D", "upsample_bilinear2d_channels_last"),
    ("trilinear3d", "Trilinear3D", "compute_indices_weights_linear"), ("bicubic2d", "Bicubic2D", "compute_indices_weights_cubic"),
    ("bilinear2d_aa", "Bilinear2DAa", "compute_index_ranges_weights"), ("bicubic2d_aa", "Bicubic2DAa", "compute_index_ranges_weights"),
    ("lanczos2d_aa", "Lanczos2DAa", "compute_index_ranges_weights"),
):  # fmt: skip
    op(f"_upsample_{_mode}(Tensor self, int[] output_size, any scales, str mode, bool align_corners)", order=IMAGE_ALONE,
       node=f"Upsample{_node}Backward0", linear=True, transpose=_upsample_back,
       validate=refusing(_kernel, "biuch" if _mode.endswith("_aa") else "biuc", None if _kernel.endswith("_linear") else np.uint8),
       numpy=_RESIZED, numpy_vjp=_RESIZED_BACK, method=False, toplevel=False, attributes=_attributes(_mode))(_upsample)  # fmt: skip
